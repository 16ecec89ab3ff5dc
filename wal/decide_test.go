package wal

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outtail/outtail/event"
)

func faultOf(t *testing.T, err error) *event.Fault {
	t.Helper()
	require.Error(t, err)
	f := event.AsFault(err)
	require.NotNil(t, f, "%v", err)
	require.NotEmpty(t, f.Hint)
	return f
}

func lsn(v uint64) *event.LSN { l := event.LSN(v); return &l }

func slotAt(confirmed uint64) *slotFacts {
	return &slotFacts{Plugin: "pgoutput", Type: "logical", Database: "shop", WALStatus: "reserved", Restart: lsn(1), Confirmed: lsn(confirmed)}
}

// world is a healthy server whose log ends at 1000, with the slot at 100 and an outbox in the publication.
func world() (*Options, []name, *facts) {
	o := &Options{Host: "h", Port: 5432, Database: "shop", Slot: "s", Publication: "p", Tables: []string{"public.outbox"}, Start: "now"}
	n := []name{{"public", "outbox"}}
	return o, n, &facts{
		Version: 170000, WALLevel: "logical", SystemID: "7", Timeline: 1, End: 1000, Database: "shop", Slot: slotAt(100),
		Pub:    &pubFacts{OID: 50, Row: "900", Insert: true},
		Tables: []tableFacts{{Name: n[0], RelID: 60, Kind: "r", Persistence: "p", Member: 70, Columns: map[string]columnFacts{}}},
	}
}

// stored is a checkpoint at 200 that a session in world would have saved.
func stored(o *Options, n []name, f *facts) event.Checkpoint {
	d := dependsOf(o, n, f)
	return event.Checkpoint{
		Position: event.Position{Kind: event.Postgres, SystemID: "7", Timeline: 1, Slot: "s", LSN: 200}, Depends: d.json(), Selection: d.Selection,
		Prefix: &event.Prefix{Tx: "0/C9", Rows: 3, Selection: d.Selection},
	}
}

func TestStartRule(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*Options, *facts)
		code   string
		class  event.Class
		at     event.LSN
		create bool
	}{
		"the slot wins over now":           {func(o *Options, f *facts) {}, "", 0, 100, false},
		"the slot wins over earliest":      {func(o *Options, f *facts) { o.Start = "earliest" }, "", 0, 100, false},
		"the slot wins over create":        {func(o *Options, f *facts) { o.Create = true }, "", 0, 100, false},
		"the slot needs no start":          {func(o *Options, f *facts) { o.Start = "" }, "", 0, 100, false},
		"the slot after an emptied folder": {func(o *Options, f *facts) { o.RanBefore = true }, "", 0, 100, false},
		"a slot with two_phase":            {func(o *Options, f *facts) { f.Slot.TwoPhase = true }, CodeTwoPhase, event.Environment, 0, false},
		"no slot, create":                  {func(o *Options, f *facts) { o.Create, f.Slot = true, nil }, "", 0, 0, true},
		"no slot, no create":               {func(o *Options, f *facts) { f.Slot = nil }, CodeNoSlot, event.Environment, 0, false},
		"no slot, earliest":                {func(o *Options, f *facts) { o.Create, o.Start, f.Slot = true, "earliest", nil }, CodeEarliest, event.Environment, 0, false},
		"no slot, no start":                {func(o *Options, f *facts) { o.Create, o.Start, f.Slot = true, "", nil }, CodeNoStart, event.Environment, 0, false},
		"no slot, ran before":              {func(o *Options, f *facts) { o.Create, o.RanBefore, f.Slot = true, true, nil }, CodeRanBefore, event.Safety, 0, false},
		"an invalidated slot":              {func(o *Options, f *facts) { f.Slot.WALStatus = "lost" }, CodeSlotInvalidated, event.Safety, 0, false},
		"another plugin's slot":            {func(o *Options, f *facts) { f.Slot.Plugin = "wal2json" }, CodeForeignSlot, event.Safety, 0, false},
		"another database's slot":          {func(o *Options, f *facts) { f.Slot.Database = "other" }, CodeForeignSlot, event.Safety, 0, false},
		"a physical slot":                  {func(o *Options, f *facts) { f.Slot.Type = "physical" }, CodeForeignSlot, event.Safety, 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			o, n, f := world()
			c.change(o, f)
			p, fault := decide(o, n, event.Checkpoint{}, f)
			if c.code != "" {
				require.NotNil(t, fault)
				require.Equal(t, c.code, fault.Code)
				require.Equal(t, c.class, fault.Class)
				require.NotEmpty(t, fault.Hint)
				return
			}
			require.Nil(t, fault)
			require.Equal(t, c.at, p.At)
			require.Equal(t, c.create, p.Create)
			require.Len(t, p.Notes, 1)
		})
	}
}

func TestAStoredPositionIsComparedWithTheServer(t *testing.T) {
	history := []timelineSwitch{{1, 150}, {2, 400}}
	for name, c := range map[string]struct {
		change   func(*Options, *facts, *event.Checkpoint)
		code     string    // the finding
		accepted event.LSN // where accepting it resumes; 0: accepting does not help
		at       event.LSN // without a finding
		noPrefix bool
	}{
		"all is well":            {change: func(o *Options, f *facts, cp *event.Checkpoint) {}, at: 200},
		"the slot stands at it":  {change: func(o *Options, f *facts, cp *event.Checkpoint) { f.Slot = slotAt(200) }, at: 200},
		"the log ends at it":     {change: func(o *Options, f *facts, cp *event.Checkpoint) { f.End = 200 }, at: 200},
		"another server":         {change: func(o *Options, f *facts, cp *event.Checkpoint) { f.SystemID = "8" }, code: CodeOtherServer, accepted: 100, noPrefix: true},
		"another database":       {change: func(o *Options, f *facts, cp *event.Checkpoint) { f.Database, f.Slot.Database = "x", "x" }, code: CodeOtherDatabase, accepted: 100, noPrefix: true},
		"the slot is gone":       {change: func(o *Options, f *facts, cp *event.Checkpoint) { f.Slot = nil }, code: CodeSlotLost},
		"… and create is on":     {change: func(o *Options, f *facts, cp *event.Checkpoint) { f.Slot, o.Create = nil, true }, code: CodeSlotLost},
		"the slot is invalid":    {change: func(o *Options, f *facts, cp *event.Checkpoint) { f.Slot.Invalidation = "wal_removed" }, code: CodeSlotInvalidated},
		"the slot keeps nothing": {change: func(o *Options, f *facts, cp *event.Checkpoint) { f.Slot.Restart = nil }, code: CodeSlotInvalidated},
		"the slot is ahead":      {change: func(o *Options, f *facts, cp *event.Checkpoint) { f.Slot = slotAt(201) }, code: CodeSlotAdvanced, accepted: 201, noPrefix: true},
		"restored from a backup": {change: func(o *Options, f *facts, cp *event.Checkpoint) { f.End = 199 }, code: CodeAheadOfServer, accepted: 100, noPrefix: true},
		"promoted, before fork":  {change: func(o *Options, f *facts, cp *event.Checkpoint) { f.Timeline, cp.Position.LSN = 2, 150 }, at: 150, noPrefix: true},
		"promoted, beyond fork":  {change: func(o *Options, f *facts, cp *event.Checkpoint) { f.Timeline = 2 }, code: CodeBeyondFork, accepted: 150, noPrefix: true},
		"promoted twice":         {change: func(o *Options, f *facts, cp *event.Checkpoint) { f.Timeline, cp.Position.Timeline = 3, 2 }, at: 200, noPrefix: true},
		"no ancestor":            {change: func(o *Options, f *facts, cp *event.Checkpoint) { f.Timeline, cp.Position.Timeline = 9, 5 }, code: CodeOtherHistory, accepted: 100, noPrefix: true},
		"the other promoted standby": {change: func(o *Options, f *facts, cp *event.Checkpoint) {
			f.Timeline, cp.Position.Timeline = 3, 3
			cp.Depends = depends{Database: "shop", Began: 399, Publication: dependsPub{"p", 50, "900"}}.json()
		}, code: CodeOtherHistory, accepted: 100, noPrefix: true},
		"the same promoted standby": {change: func(o *Options, f *facts, cp *event.Checkpoint) {
			f.Timeline, cp.Position.Timeline = 3, 3
			cp.Depends = depends{Database: "shop", Began: 400, Publication: dependsPub{"p", 50, "900"}}.json()
		}, at: 200},
		"promoted once more on the other branch": {change: func(o *Options, f *facts, cp *event.Checkpoint) {
			f.Timeline, cp.Position.Timeline = 3, 2
			cp.Depends = depends{Database: "shop", Began: 149, Timeline: 2, Publication: dependsPub{"p", 50, "900"}}.json()
		}, code: CodeOtherHistory, accepted: 100, noPrefix: true},
		"promoted once more on ours": {change: func(o *Options, f *facts, cp *event.Checkpoint) {
			f.Timeline, cp.Position.Timeline = 3, 2
			cp.Depends = depends{Database: "shop", Began: 150, Timeline: 2, Publication: dependsPub{"p", 50, "900"}}.json()
		}, at: 200, noPrefix: true},
		"where the timeline was told before the first position on it": {change: func(o *Options, f *facts, cp *event.Checkpoint) {
			f.Timeline, cp.Position.Timeline = 3, 2
			cp.Depends = depends{Database: "shop", Began: 400, Timeline: 3, Publication: dependsPub{"p", 50, "900"}}.json()
		}, at: 200, noPrefix: true},
		"an older timeline":        {change: func(o *Options, f *facts, cp *event.Checkpoint) { cp.Position.Timeline = 2 }, code: CodeOtherHistory, accepted: 100, noPrefix: true},
		"publication altered":      {change: func(o *Options, f *facts, cp *event.Checkpoint) { f.Pub.Row = "901" }, code: CodeDependsChanged, accepted: 200, noPrefix: true},
		"publication recreated":    {change: func(o *Options, f *facts, cp *event.Checkpoint) { f.Pub.OID = 51 }, code: CodeDependsChanged, accepted: 200, noPrefix: true},
		"publication gone":         {change: func(o *Options, f *facts, cp *event.Checkpoint) { f.Pub = nil }, code: CodePublicationGone},
		"table recreated":          {change: func(o *Options, f *facts, cp *event.Checkpoint) { f.Tables[0].RelID = 61 }, code: CodeDependsChanged, accepted: 200, noPrefix: true},
		"table gone":               {change: func(o *Options, f *facts, cp *event.Checkpoint) { f.Tables[0].RelID = 0 }, code: CodeDependsChanged, accepted: 200, noPrefix: true},
		"table added again":        {change: func(o *Options, f *facts, cp *event.Checkpoint) { f.Tables[0].Member = 71 }, code: CodeDependsChanged, accepted: 200, noPrefix: true},
		"table unlogged":           {change: func(o *Options, f *facts, cp *event.Checkpoint) { f.Tables[0].Persistence = "u" }, code: CodeDependsChanged, accepted: 200, noPrefix: true},
		"a partition unlogged":     {change: func(o *Options, f *facts, cp *event.Checkpoint) { f.Tables[0].UnloggedPart = &name{"a", "b"} }, code: CodeDependsChanged, accepted: 200, noPrefix: true},
		"table attached":           {change: func(o *Options, f *facts, cp *event.Checkpoint) { f.Tables[0].Ancestors = []uint32{99} }, code: CodeDependsChanged, accepted: 200, noPrefix: true},
		"columns mapped otherwise": {change: func(o *Options, f *facts, cp *event.Checkpoint) { o.Columns[event.ID].Column = "id" }, at: 200, noPrefix: true},
		"a prefix without a hash":  {change: func(o *Options, f *facts, cp *event.Checkpoint) { cp.Prefix.Selection = "" }, at: 200},
		"a prefix of other rows":   {change: func(o *Options, f *facts, cp *event.Checkpoint) { cp.Prefix.Selection = "x" }, at: 200, noPrefix: true},
	} {
		t.Run(name, func(t *testing.T) {
			o, n, f := world()
			cp := stored(o, n, f)
			f.History = history
			c.change(o, f, &cp)
			p, fault := decide(o, n, cp, f)
			if c.code != "" {
				require.NotNil(t, fault)
				require.Equal(t, c.code, fault.Code)
				require.Equal(t, event.Safety, fault.Class)
				require.NotEmpty(t, fault.Hint)
				cp.Accepted = []string{"OT9999", c.code}
				p, fault = decide(o, n, cp, f)
				if c.accepted == 0 {
					require.NotNil(t, fault)
					return
				}
				c.at = c.accepted
			}
			require.Nil(t, fault)
			require.Equal(t, c.at, p.At)
			require.Equal(t, c.noPrefix, p.Prefix == nil)
			require.False(t, p.Create)
		})
	}
}

func TestAServerThatIsNoPrimaryYetIsWaitedFor(t *testing.T) {
	for name, change := range map[string]func(*facts, *event.Checkpoint){
		"the slot is a copy":          func(f *facts, cp *event.Checkpoint) { f.Slot.Synced = true },
		"the position is not there":   func(f *facts, cp *event.Checkpoint) { f.End = 199 },
		"it follows the old timeline": func(f *facts, cp *event.Checkpoint) { cp.Position.Timeline = 2 },
	} {
		t.Run(name, func(t *testing.T) {
			o, n, f := world()
			cp := stored(o, n, f)
			f.Recovery = true
			change(f, &cp)
			_, fault := decide(o, n, cp, f)
			require.Equal(t, CodeNotPromoted, fault.Code)
			require.Equal(t, event.Environment, fault.Class)
			require.False(t, fault.Immediate)
		})
	}
	o, n, f := world()
	f.Slot.Synced = true // it was a copy before this server was promoted
	_, fault := decide(o, n, stored(o, n, f), f)
	require.Nil(t, fault)
	f.Recovery = true
	_, fault = decide(o, n, event.Checkpoint{}, f)
	require.Equal(t, CodeNotPromoted, fault.Code)
}

func TestATableThatIsNewInTheConfigurationIsNoFinding(t *testing.T) {
	o, n, f := world()
	cp := stored(o, n, f)
	n = append(n, name{"public", "more"})
	f.Tables = append(f.Tables, tableFacts{Name: n[1], RelID: 61, Kind: "r", Persistence: "p", Member: 71})
	p, fault := decide(o, n, cp, f)
	require.Nil(t, fault)
	require.EqualValues(t, 200, p.At)
	require.Nil(t, p.Prefix, "other rows are counted now")
}

func TestTimelineHistory(t *testing.T) {
	h := parseHistory("# comment\n1\t0/5000000\tno recovery target specified\n\n2\t1/A0\treason\nrubbish\n")
	require.Equal(t, []timelineSwitch{{1, 0x5000000}, {2, 0x1000000A0}}, h)
}

func TestAGapIsToldInTime(t *testing.T) {
	saved := time.Now().Add(-3 * time.Hour)
	f := since(faultSlotLost("h", "s", 100, 200), saved)
	require.Contains(t, f.Text, "0/64")
	require.Contains(t, f.Text, "saved at "+saved.UTC().Format(time.RFC3339)+", 3h0m0s ago")
	for _, same := range []*event.Fault{faultSlotActive("h", "s", 1), faultNoSlot("h", "s")} {
		require.Equal(t, same, since(same, saved))
	}
	require.NotContains(t, since(faultRanBefore("h", "s", 1), time.Time{}).Text, "saved")
}
