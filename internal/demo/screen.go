package demo

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"strings"
	"time"
	"unicode/utf8"

	"golang.org/x/term"
)

// Snapshot is what the screen shows at one moment.
type Snapshot struct {
	Tally
	Elapsed, Duration       time.Duration // Duration 0: until interrupted
	RolledBack              uint64
	CommitRate, ArrivalRate float64 // per second
	Kills                   int
	NextKill                time.Duration // 0: no further kill
	Pid                     int           // 0: not running
	Up                      time.Duration
	Memory                  int64           // bytes, 0 unknown
	Lags                    []time.Duration // one per second, newest last
	Notes                   []string        // what happened lately, newest last
	Closing                 string          // what is waited for at the end
	Places                  string          // where everything listens
}

// lagWidth is how many seconds of lag are drawn.
const lagWidth = 48

// paint colours text; without colours it leaves it.
type paint bool

func (p paint) sgr(code, s string) string {
	if !p {
		return s
	}
	return "\x1b[" + code + "m" + s + "\x1b[0m"
}
func (p paint) bold(s string) string { return p.sgr("1", s) }
func (p paint) dim(s string) string  { return p.sgr("2", s) }
func (p paint) zero(n uint64) string { // a number that must be 0
	if n == 0 {
		return p.sgr("32", "0")
	}
	return p.sgr("1;31", count(n))
}

// Lines draws the screen: pure, one string per line, without line ends.
func (s Snapshot) Lines(p paint) []string {
	clock := clockTime(s.Elapsed)
	if s.Duration > 0 {
		clock += " of " + clockTime(s.Duration)
	}
	life := "not running"
	if s.Pid != 0 {
		life = fmt.Sprintf("pid %d, up %s", s.Pid, span(s.Up))
		if s.Memory > 0 {
			life += fmt.Sprintf(", %d MiB", s.Memory>>20)
		}
	}
	next := "no further kill"
	if s.NextKill > 0 {
		next = "next in " + span(s.NextKill)
	}
	closing := "Ctrl-C ends the demo with a verdict"
	if s.Closing != "" {
		closing = s.Closing
	}
	label := func(name string) string { return "  " + p.dim(fmt.Sprintf("%-12s", name)) }
	field := func(n uint64) string { return p.bold(fmt.Sprintf("%9s", count(n))) }
	lines := []string{
		"",
		"  " + p.bold("outtail demo") + fmt.Sprintf("%56s", clock),
		"",
		label("orders") + field(s.Committed) + fmt.Sprintf(" committed  %8s", perSecond(s.CommitRate)) +
			fmt.Sprintf("     %9s rolled back", count(s.RolledBack)),
		label("events") + field(s.Delivered) + fmt.Sprintf(" delivered  %8s", perSecond(s.ArrivalRate)) +
			fmt.Sprintf("     %9s duplicates absorbed", count(s.Duplicates)),
		"",
		label("behind") + field(s.Behind) + fmt.Sprintf(" events     oldest %s", span(s.Lag)),
		label("latency") + fmt.Sprintf("%9s p50 %12s p99     commit to consumer, last 5 s", span(s.Quantile(0.5)), span(s.Quantile(0.99))),
		label("lag") + "  " + sparkline(s.Lags, lagWidth) + p.dim(fmt.Sprintf("  peak %s", span(peak(s.Lags)))),
		"",
		label("outtail") + "  " + life,
		label("SIGKILL") + field(uint64(s.Kills)) + " so far     " + next,
		"",
		label("promises") + "  lost " + p.zero(s.Missing) + "   out of order " + p.zero(s.OutOfOrder) + "   invented " + p.zero(s.Invented) +
			"   changed " + p.zero(s.Changed),
		"",
	}
	const noteLines = 3
	notes := s.Notes[max(0, len(s.Notes)-noteLines):]
	for i := range noteLines {
		if i < len(notes) {
			lines = append(lines, "  "+p.dim(notes[i]))
		} else {
			lines = append(lines, "")
		}
	}
	return append(lines, "", "  "+p.dim(s.Places), "  "+p.dim(closing))
}

// Line is the whole of it in one, for logs and pipes.
func (s Snapshot) Line() string {
	line := fmt.Sprintf("%s committed %d (%s) delivered %d (%s) behind %d oldest %s duplicates %d rolled_back %d kills %d out_of_order %d p99 %s",
		clockTime(s.Elapsed), s.Committed, perSecond(s.CommitRate), s.Delivered, perSecond(s.ArrivalRate), s.Behind, span(s.Lag),
		s.Duplicates, s.RolledBack, s.Kills, s.OutOfOrder, span(s.Quantile(0.99)))
	if s.Closing != "" {
		line += " (" + s.Closing + ")"
	}
	return line
}

func clockTime(d time.Duration) string {
	seconds := int(d.Round(time.Second) / time.Second)
	if seconds >= 3600 {
		return fmt.Sprintf("%d:%02d:%02d", seconds/3600, seconds/60%60, seconds%60)
	}
	return fmt.Sprintf("%02d:%02d", seconds/60, seconds%60)
}

// span is a duration in at most six characters.
func span(d time.Duration) string {
	switch {
	case d <= 0:
		return "0 ms"
	case d < time.Millisecond:
		return "<1 ms"
	case d < time.Second:
		return fmt.Sprintf("%d ms", d/time.Millisecond)
	case d < 10*time.Second:
		return fmt.Sprintf("%.1f s", d.Seconds())
	case d < 2*time.Minute:
		return fmt.Sprintf("%d s", d/time.Second)
	}
	return fmt.Sprintf("%d min", d/time.Minute)
}

func perSecond(r float64) string { return fmt.Sprintf("%.0f/s", r) }

// count groups digits by thousands.
func count(n uint64) string {
	s := fmt.Sprint(n)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

func peak(all []time.Duration) time.Duration {
	var most time.Duration
	for _, d := range all {
		most = max(most, d)
	}
	return most
}

// sparkline draws the newest values on a scale of powers: from below 10 ms to above 10 s, so that a calm second and an
// outage are both seen.
func sparkline(values []time.Duration, width int) string {
	steps := []time.Duration{
		10 * time.Millisecond, 30 * time.Millisecond, 100 * time.Millisecond, 300 * time.Millisecond, time.Second,
		3 * time.Second, 10 * time.Second,
	}
	marks := []rune("▁▂▃▄▅▆▇█")
	values = values[max(0, len(values)-width):]
	line := make([]rune, 0, width)
	for _, v := range values {
		level := 0
		for level < len(steps) && v >= steps[level] {
			level++
		}
		line = append(line, marks[level])
	}
	return string(line) + strings.Repeat(" ", width-len(line))
}

// screen shows snapshots: in place on a terminal, a line now and then elsewhere.
type screen struct {
	out     io.Writer
	live    bool
	paint   paint
	drawn   int // lines of the latest frame
	printed time.Duration
	told    int // notes that were printed
}

// plainEvery is how often a line is printed where there is no terminal.
const plainEvery = 5 * time.Second

func newScreen(out io.Writer, getenv func(string) string) *screen {
	terminal := isTerminal(out) && getenv("TERM") != "dumb"
	return &screen{out: out, live: terminal, paint: paint(terminal && getenv("NO_COLOR") == ""), printed: time.Second - plainEvery}
}

// size of the terminal; what a terminal always had where it does not say.
func (s *screen) size() (width, height int) {
	if f, ok := s.out.(*os.File); ok {
		if w, h, err := term.GetSize(int(f.Fd())); err == nil && w > 0 && h > 0 {
			return w, h
		}
	}
	return 80, 24
}

// show draws a snapshot. A frame is one write, over the latest one, each line cleared behind its end: nothing flickers.
func (s *screen) show(snapshot Snapshot) {
	if !s.live {
		s.print(snapshot)
		return
	}
	width, height := s.size()
	_, _ = s.out.Write(s.frame(snapshot.Lines(s.paint), width, height)) // a terminal that is gone ends the demo by its signal
}

func (s *screen) frame(lines []string, width, height int) []byte {
	lines = lines[:min(len(lines), max(1, height-1))]
	var b bytes.Buffer
	b.WriteString("\x1b[?2026h\x1b[?25l") // one picture where the terminal knows how; no cursor
	if s.drawn > 0 {
		fmt.Fprintf(&b, "\x1b[%dA\r", s.drawn)
	}
	for _, line := range lines {
		b.WriteString(clip(line, width-1))
		b.WriteString("\x1b[K\n")
	}
	b.WriteString("\x1b[J\x1b[?2026l")
	s.drawn = len(lines)
	return b.Bytes()
}

func (s *screen) print(snapshot Snapshot) {
	for ; s.told < len(snapshot.Notes); s.told++ {
		fmt.Fprintln(s.out, snapshot.Notes[s.told])
	}
	if snapshot.Elapsed-s.printed < plainEvery {
		return
	}
	s.printed = snapshot.Elapsed
	fmt.Fprintln(s.out, snapshot.Line())
}

// close gives the terminal back.
func (s *screen) close() {
	if s.live && s.drawn > 0 {
		_, _ = io.WriteString(s.out, "\x1b[?25h\x1b[0m")
	}
}

// clip cuts a line to a width in characters; colour sequences have none. Every character drawn here is one column wide.
func clip(line string, width int) string {
	var b strings.Builder
	for column := 0; len(line) > 0; {
		if end := strings.IndexByte(line, 'm'); strings.HasPrefix(line, "\x1b[") && end > 0 {
			b.WriteString(line[:end+1])
			line = line[end+1:]
			continue
		}
		_, size := utf8.DecodeRuneInString(line)
		if column < width {
			b.WriteString(line[:size])
		}
		column++
		line = line[size:]
	}
	return b.String()
}
