package binlog

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/outtail/outtail/event"
)

// A statement that is logged as such may put rows into an outbox table that it does not name: by a trigger, through a view, by a
// function. The log says nothing of it; the server's catalogue does, to a user who may look. It is asked when the first such
// statement is met, because on a server that logs rows, as it should, nothing here matters; what is created later stands in the
// log itself.
//
// What remains unseen: what was dropped before we asked and created before we began to read; triggers in schemas where our user has
// no TRIGGER privilege, and functions beyond our tables' schemas whose text may not be seen, unless MySQL tells that the statement
// wrote in one of these schemas.
type carriers struct {
	list    []carrier
	hidden  []object // views and routines whose text we may not see
	asked   time.Time
	stale   bool
	trigger func(schema string) bool // whether triggers of a schema show; nil: not known
	known   map[string]bool          // functions that were looked at: "schema.name"
}

type objectKind byte

const (
	aTrigger objectKind = iota
	aView
	aRoutine
)

func (k objectKind) String() string { return [...]string{"trigger", "view", "routine"}[k] }

// object is a trigger, view or routine.
type object struct {
	kind         objectKind
	schema, name string
	event        string // of a trigger: INSERT, UPDATE, DELETE; more than one in one text
	onSchema, on string // of a trigger: its table
	body         []byte // lower case
}

// carrier is an object through which rows come into an outbox table.
type carrier struct {
	object
	into *table // the outbox table
}

// calls reports whether a text, lower case, with a default schema, uses the carrier as it must be used to bring rows.
func (c *carrier) calls(schema string, text []byte) bool {
	q := query{schema: []byte(schema), text: text}
	switch c.kind {
	case aTrigger:
		return named(q, c.onSchema, c.on) && c.fires(text)
	case aView:
		return named(q, c.schema, c.name) && adding(text)
	}
	return invokes(q, c.schema, c.name)
}

func (c *carrier) fires(text []byte) bool {
	return word([]byte(c.event), "insert") && adding(text) ||
		word([]byte(c.event), "update") && word(text, "update") ||
		word([]byte(c.event), "delete") && (word(text, "delete") || word(text, "replace"))
}

func adding(text []byte) bool {
	return word(text, "insert") || word(text, "replace") || word(text, "load")
}

// take adds those of the objects that lead to a table of ours, directly or through each other.
func (k *carriers) take(objects []object, tables []table) {
	for grown := true; grown; {
		grown = false
		objects = slices.DeleteFunc(objects, func(o object) bool {
			into := k.leads(&o, tables)
			if into == nil {
				return false
			}
			k.drop(o.kind, o.schema, o.name)
			k.list = append(k.list, carrier{o, into})
			grown = true
			return true
		})
	}
}

func (k *carriers) leads(o *object, tables []table) *table {
	for i := range tables {
		t := &tables[i]
		if named(query{schema: []byte(o.schema), text: o.body}, t.schema, t.table) && (o.kind == aView || adding(o.body)) {
			return t
		}
	}
	for i := range k.list {
		c := &k.list[i]
		// A view passes on what it is written; what stands in it is no INSERT.
		schema, name := c.target()
		if c.calls(o.schema, o.body) || o.kind == aView && named(query{schema: []byte(o.schema), text: o.body}, schema, name) {
			return c.into
		}
	}
	return nil
}

// target is what a statement must name to write through a trigger or view.
func (c *carrier) target() (schema, name string) {
	if c.kind == aTrigger {
		return c.onSchema, c.on
	}
	return c.schema, c.name
}

func (k *carriers) drop(kind objectKind, schema, name string) {
	k.list = slices.DeleteFunc(k.list, func(c carrier) bool {
		return c.kind == kind && equalFold(c.schema, schema) && equalFold(c.name, name)
	})
}

// follow takes in a statement of the log that creates or drops a trigger, view or routine.
func (k *carriers) follow(q query, tables []table) {
	s := tokens{b: q.text}
	verb := s.next()
	if !verb.is("CREATE", "DROP", "ALTER", "RENAME") {
		return
	}
	o := object{schema: string(q.schema)}
	t := s.next()
	for ; t.kind != 0; t = s.next() {
		if t.is("TABLE", "INDEX", "DATABASE", "SCHEMA", "USER", "EVENT", "SEQUENCE") {
			k.stale = k.stale || verb.is("RENAME", "ALTER")
			return
		}
		if t.is("TRIGGER", "VIEW", "FUNCTION", "PROCEDURE") {
			break
		}
	}
	switch {
	case t.is("TRIGGER"):
		o.kind = aTrigger
	case t.is("VIEW"):
		o.kind = aView
	case t.is("FUNCTION", "PROCEDURE"):
		o.kind = aRoutine
	default:
		return
	}
	t = s.next()
	for t.is("IF", "NOT", "EXISTS") {
		t = s.next()
	}
	schema, name := s.tableName(t)
	if o.name = name; schema != "" {
		o.schema = schema
	}
	k.stale = true
	if verb.is("DROP") {
		k.drop(o.kind, o.schema, o.name)
		return
	}
	if o.kind == aTrigger {
		for t = s.next(); t.kind != 0 && !t.is("ON"); t = s.next() {
			o.event += " " + strings.ToLower(t.text)
		}
		o.onSchema, o.on = s.tableName(s.next())
		if o.onSchema == "" {
			o.onSchema = o.schema
		}
	}
	o.body = []byte(strings.ToLower(string(s.b)))
	k.take([]object{o}, tables)
}

// askAgain is after how long the catalogue is asked again while statements are logged.
const askAgain = 10 * time.Minute

// lookForCarriers asks the catalogue, where that is due.
func (s *Source) lookForCarriers(ctx context.Context) {
	k := &s.carriers
	if s.meta == nil || !k.asked.IsZero() && !k.stale && time.Since(k.asked) < askAgain {
		return
	}
	k.asked, k.stale = time.Now(), false
	objects, err := s.askForObjects(ctx)
	if err != nil {
		s.log.Warn("the server's triggers, views and routines cannot be read", "error", err)
		k.trigger = nil
	}
	k.hidden, k.known = nil, map[string]bool{}
	for i := range objects {
		if o := &objects[i]; o.kind != aTrigger && len(o.body) == 0 {
			k.hidden = append(k.hidden, *o)
		} else if o.kind == aRoutine {
			k.known[strings.ToLower(o.schema+"."+o.name)] = true
		}
	}
	k.take(objects, s.tables)
}

const noSystemSchemas = " NOT IN ('mysql', 'sys', 'information_schema', 'performance_schema')"

func (s *Source) askForObjects(ctx context.Context) ([]object, error) {
	c, err := s.connectSame(ctx)
	if err != nil {
		return nil, err
	}
	defer c.close()
	out, err := s.objects(ctx, c)
	if err == nil {
		s.carriers.trigger, err = s.seesTriggers(ctx, c)
	}
	return out, err
}

func (s *Source) objects(ctx context.Context, c *conn) ([]object, error) {
	var out []object
	r, err := c.query(ctx, "SELECT TRIGGER_SCHEMA, TRIGGER_NAME, LOWER(EVENT_MANIPULATION), EVENT_OBJECT_SCHEMA, EVENT_OBJECT_TABLE, LOWER(ACTION_STATEMENT)"+
		" FROM information_schema.TRIGGERS WHERE TRIGGER_SCHEMA"+noSystemSchemas)
	if err != nil {
		return nil, err
	}
	for i := range r.RowNumber() {
		var v [6]string
		for n := range v {
			v[n], _ = r.GetString(i, n)
		}
		out = append(out, object{kind: aTrigger, schema: v[0], name: v[1], event: v[2], onSchema: v[3], on: v[4], body: []byte(v[5])})
	}
	for kind, q := range map[objectKind]string{
		aView:    "SELECT TABLE_SCHEMA, TABLE_NAME, LOWER(VIEW_DEFINITION) FROM information_schema.VIEWS WHERE TABLE_SCHEMA" + noSystemSchemas,
		aRoutine: "SELECT ROUTINE_SCHEMA, ROUTINE_NAME, LOWER(ROUTINE_DEFINITION) FROM information_schema.ROUTINES WHERE ROUTINE_SCHEMA" + noSystemSchemas,
	} {
		if r, err = c.query(ctx, q); err != nil {
			return nil, err
		}
		for i := range r.RowNumber() {
			var v [3]string
			for n := range v {
				v[n], _ = r.GetString(i, n)
			}
			out = append(out, object{kind: kind, schema: v[0], name: v[1], body: []byte(v[2])})
		}
	}
	return out, nil
}

// seesTriggers reads from our grants in which schemas triggers show.
func (s *Source) seesTriggers(ctx context.Context, c *conn) (func(string) bool, error) {
	r, err := c.query(ctx, "SHOW GRANTS")
	if err != nil {
		return nil, err
	}
	var in []string
	for i := range r.RowNumber() {
		line, _ := r.GetString(i, 0)
		rights, rest, ok := strings.Cut(line, " ON ")
		if !ok || !strings.Contains(rights+",", "TRIGGER,") && !strings.Contains(rights, "ALL PRIVILEGES") {
			continue
		}
		scope, _, _ := strings.Cut(rest, " TO ")
		in = append(in, scope)
	}
	return func(schema string) bool {
		return slices.Contains(in, "*.*") || slices.Contains(in, backtick(schema)+".*")
	}, nil
}

// carried looks for a carrier behind a statement that was logged as such.
func (st *stream) carried(q query, w *written) *event.Fault {
	k := &st.s.carriers
	text := []byte(strings.ToLower(string(q.text)))
	schemas, told := q.written()
	// reaches: the server does not say that nothing was written where the table is.
	reaches := func(schema string) bool {
		return !told || slices.ContainsFunc(schemas, func(s string) bool { return sameName(s, schema) })
	}
	for i := range st.s.tables {
		t := &st.s.tables[i]
		if told && reaches(t.schema) && !equalFold(string(q.schema), t.schema) && !names(text, t.schema) {
			return st.statementFault("by a trigger, view or function it writes in schema "+t.schema+", where "+t.name+" is: what it inserted there cannot be read", "")
		}
	}
	for i := range k.list {
		c := &k.list[i]
		if !reaches(c.into.schema) || !c.calls(string(q.schema), text) {
			continue
		}
		// INSERT INTO a SELECT … FROM b fires triggers of a only.
		schema, name := c.target()
		if c.kind != aRoutine && w.adds() && !w.into(q, schema, name) && !word(text, "update") {
			continue
		}
		return st.statementFault("the "+c.kind.String()+" "+c.schema+"."+c.name+" leads from it to "+c.into.name+": what it inserted there cannot be read", "")
	}
	// unknown: an object whose text may not be seen counts where it is beside a table of ours, or is said to have written there.
	unknown := func(o *object) bool {
		return slices.ContainsFunc(st.s.tables, func(t table) bool { return reaches(t.schema) && (told || equalFold(o.schema, t.schema)) })
	}
	for i := range k.hidden {
		o := &k.hidden[i]
		if !unknown(o) {
			continue
		}
		if o.kind == aView && w.into(q, o.schema, o.name) {
			return st.hiddenFault(o, "GRANT SHOW VIEW ON "+backtick(o.schema)+".* TO '"+st.s.o.User+"'@'%';")
		}
		if o.kind == aRoutine && invokes(q, o.schema, o.name) {
			return st.hiddenFault(o, st.s.routineGrant())
		}
	}
	// The server writes SELECT `schema`.`function`(…) for a statement of whatever form in which a function wrote something.
	if kind, _ := statement(q.text); kind == stmtSelect {
		s := tokens{b: q.text}
		s.next()
		schema, name := s.tableName(s.next())
		if o := (&object{kind: aRoutine, schema: schema, name: name}); schema != "" && !k.known[strings.ToLower(schema+"."+name)] && unknown(o) {
			return st.hiddenFault(o, st.s.routineGrant())
		}
	}
	return nil
}

func (st *stream) hiddenFault(o *object, grant string) *event.Fault {
	return st.statementFault(fmt.Sprintf("it uses the %s %s.%s, and whether that inserts into an outbox table is not known, because its text may not be seen",
		o.kind, o.schema, o.name), "Where it does not, let it be seen and start again: "+grant+"\n")
}

// routineGrant is what shows the text of routines.
func (s *Source) routineGrant() string {
	if s.o.Kind == event.MariaDB {
		return "GRANT SELECT ON mysql.proc TO '" + s.o.User + "'@'%';"
	}
	return "GRANT SHOW_ROUTINE ON *.* TO '" + s.o.User + "'@'%';"
}
