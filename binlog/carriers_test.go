package binlog

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestWhatLeadsIntoAnOutboxTableIsFollowedInTheLog(t *testing.T) {
	tables := []table{{name: "shop.outbox", schema: "shop", table: "outbox"}}
	created := []string{
		"CREATE DEFINER=`root`@`%` TRIGGER `tg` AFTER INSERT ON orders FOR EACH ROW INSERT INTO outbox (id) VALUES (NEW.id)",
		"CREATE TRIGGER up BEFORE UPDATE ON `shop`.`stock` FOR EACH ROW BEGIN CALL note(NEW.id); END",
		"CREATE PROCEDURE note(i INT) BEGIN INSERT INTO shop.outbox VALUES (i); END",
		"CREATE ALGORITHM=UNDEFINED DEFINER=`root`@`%` SQL SECURITY DEFINER VIEW `v` AS select `outbox`.`id` AS `id` from `outbox`",
		"CREATE OR REPLACE VIEW vv AS select id from v",
		"CREATE FUNCTION f(i INT) RETURNS INT BEGIN INSERT INTO vv VALUES (i); RETURN i; END",
		"CREATE FUNCTION harmless(i INT) RETURNS INT BEGIN INSERT INTO other VALUES (i); RETURN i; END",
		"CREATE TRIGGER counts AFTER INSERT ON other FOR EACH ROW SET @n = (SELECT COUNT(*) FROM outbox)",
		"/*!50003 CREATE TRIGGER chain AFTER DELETE ON far FOR EACH ROW INSERT INTO orders VALUES (1) */",
	}
	follow := func(k *carriers, texts ...string) {
		for _, text := range texts {
			k.follow(in("shop", text), tables)
		}
	}
	found := func(k *carriers, text string) bool {
		s, st := newSourceFor(t)
		s.carriers = *k
		q := in("shop", text)
		w := writtenBy(q.text)
		return st.carried(q, &w) != nil
	}
	for text, want := range map[string]bool{
		"INSERT INTO orders VALUES (1)":            true,
		"INSERT INTO archive SELECT * FROM orders": false,
		"UPDATE orders SET v = 1":                  false,
		"DELETE FROM orders":                       false,
		"INSERT INTO other VALUES (1)":             false,
		"REPLACE INTO v VALUES (1)":                true,
		"INSERT INTO `vv` VALUES (1)":              true,
		"SELECT `shop`.`f`(1)":                     true,
		"INSERT INTO other VALUES (f(1))":          true,
		"DELETE FROM far":                          true,
		"DELETE FROM v":                            false,
		"INSERT INTO elsewhere.orders VALUES (1)":  false,
		"SELECT `shop`.`never_seen`(1)":            true, // what it does is unknown
		"INSERT INTO stock VALUES (1)":             false,
	} {
		k := &carriers{}
		follow(k, created...)
		require.Equal(t, want, found(k, text), text)
	}
	t.Run("a procedure that comes after the trigger that calls it", func(t *testing.T) {
		k := &carriers{}
		follow(k, created[2], created[1])
		require.True(t, found(k, "UPDATE stock SET v = 1"))
	})
	t.Run("what is dropped leads nowhere", func(t *testing.T) {
		k := &carriers{}
		follow(k, created[0], "DROP TRIGGER IF EXISTS `shop`.`tg`")
		require.False(t, found(k, "INSERT INTO orders VALUES (1)"))
		require.True(t, k.stale, "the catalogue is asked again")
	})
}

func newSourceFor(t *testing.T) (*Source, *stream) {
	w := &logWriter{}
	w.file("binlog.000001")
	return feed(t, w, nil)
}
