package config

import (
	"log/slog"
	"net"
	"strconv"
	"time"

	"github.com/outtail/outtail/event"
)

// Config is a whole file. It is made once and not changed; a reload makes another.
type Config struct {
	// File is the path that was read.
	File         string
	DataDir      string
	StartTimeout time.Duration
	Log          Log
	Admin        Admin
	Pipelines    []Pipeline
	// Warnings are findings that do not keep outtail from running.
	Warnings Findings
}

// Log says what is logged and how.
type Log struct {
	Level  slog.Level
	Format string // auto, text or json
}

// Admin is the HTTP side.
type Admin struct {
	Listen string // host:port; empty: off
}

// Pipeline is one source with one sink.
type Pipeline struct {
	Name    string
	Source  Source
	Columns event.Columns
	Routes  []Route
	// OnPoison is the policy of routes that name none.
	OnPoison event.Policy
	// OnNoRoute is what becomes of an event that no route matches, unless such events are dropped by rule.
	OnNoRoute    event.Policy
	DropNoRoute  bool
	DeadLetters  DeadLetters
	Sink         Sink
	Limits       Limits
	Checkpoint   Checkpoint
	DrainTimeout time.Duration
}

// DeadLetters bounds, and copies, the store of parked events.
type DeadLetters struct {
	MaxEvents   int64
	MaxBytes    Size
	Retention   time.Duration // how long an event may wait before it is left out, 0: for ever
	MirrorTopic string        // empty: no copies
}

// Limits keep what a pipeline holds bounded (I11).
type Limits struct {
	InFlightEvents int
	InFlightBytes  Size
	Row            Size
	Spill          Size
	XA             Size
	MaxRate        int64 // events per second, 0: unlimited
}

// Checkpoint says how often the position is saved.
type Checkpoint struct {
	Interval time.Duration
}

// read goes through the root of a file.
func (c *Config) read(r *reader, root *section) {
	c.DataDir = root.get("data_dir").str("./data")
	if f := root.get("data_dir"); f.set() && c.DataDir == "" {
		f.bad(codeMissing, "is empty", "the positions have to be kept somewhere: data_dir: ./data")
	}
	c.StartTimeout = root.get("start_timeout").duration(30*time.Second, time.Millisecond)
	c.readLog(root.get("log"))
	c.readAdmin(root.get("admin"))

	pipelines := root.get("pipelines")
	items := pipelines.items()
	switch {
	case !pipelines.set():
		pipelines.bad(codeMissing, "is required", "a pipeline has a name, a source and a sink")
	case len(items) == 0 && pipelines.value.Kind == sequence:
		pipelines.bad(codeMissing, "is empty", "a pipeline has a name, a source and a sink")
	}
	read := make([]*readPipeline, 0, len(items))
	for _, f := range items {
		if p := r.pipeline(f); p != nil {
			read = append(read, p)
		}
	}
	r.compare(read)
	for _, p := range read {
		c.Pipelines = append(c.Pipelines, p.Pipeline)
	}
	root.close()
}

func (c *Config) readLog(f field) {
	c.Log = Log{Level: slog.LevelInfo, Format: "auto"}
	s := f.section()
	if s == nil {
		s = f.r.absent(f)
	}
	level := s.get("level").enum("info", "debug", "info", "warn", "error")
	_ = c.Log.Level.UnmarshalText([]byte(level)) // enum lets only its names through
	c.Log.Format = s.get("format").enum("auto", "auto", "text", "json")
	s.close()
}

func (c *Config) readAdmin(f field) {
	s := f.section()
	if s == nil {
		s = f.r.absent(f)
	}
	listen := s.get("listen")
	c.Admin.Listen = listen.str("127.0.0.1:8095")
	if listen.set() && c.Admin.Listen != "" && !hostPort(c.Admin.Listen, true) {
		listen.bad(codeType, listen.shown()+" is no address to listen on", `write 127.0.0.1:8095, or "" to turn it off`)
	}
	s.close()
}

// absent is a section that was not written: every key has its default.
func (r *reader) absent(f field) *section {
	return &section{r: r, path: f.path, node: f.at(), fields: map[string]field{}}
}

// hostPort checks host:port; an empty host means every address and port 0 any port, where something listens.
func hostPort(text string, listening bool) bool {
	host, port, err := net.SplitHostPort(text)
	if err != nil || (host == "" && !listening) {
		return false
	}
	n, err := strconv.ParseUint(port, 10, 16)
	return err == nil && (n > 0 || listening)
}
