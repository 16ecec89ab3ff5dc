package bench

import (
	"fmt"
	"strings"
	"testing"
)

// TestGrowth drains backlogs of one shape each: how rate, CPU and memory grow with the payload, the transaction, the share of foreign rows
// and the number of pipelines. `go run ./test/bench/report` draws them.
func TestGrowth(t *testing.T) {
	measured(t)
	n := min(*rows, 200_000)
	type point struct {
		axis      string
		at        int
		pipelines int
		load
	}
	var points []point
	for _, size := range []int{100, 1_000, 10_000, 100_000, 900_000} {
		points = append(points, point{axis: "bytes of payload", at: size, load: load{rows: max(200, min(n, 400_000_000/size)) / 10 * 10, perTx: 10, size: size}})
	}
	for _, per := range []int{1, 10, 1_000, n} {
		points = append(points, point{axis: "rows per transaction", at: per, load: load{rows: n, perTx: per, size: 450}})
	}
	for _, foreign := range []int{0, 1, 9, 99} {
		points = append(points, point{axis: "percent foreign rows", at: foreign * 100 / (foreign + 1), load: load{rows: max(2_000, n/(foreign+1)) / 10 * 10, perTx: 10, size: 450, foreign: foreign}})
	}
	for _, k := range []int{1, 4, 16} {
		points = append(points, point{axis: "pipelines", at: k, pipelines: k, load: load{rows: n / k / 10 * 10, perTx: 10, size: 450}})
	}
	for _, kind := range strings.Split(*sources, ",") {
		t.Run(kind, func(t *testing.T) {
			s := newSource(t, kind)
			for _, p := range points {
				t.Run(fmt.Sprintf("%s/%d", p.axis, p.at), func(t *testing.T) {
					s.begin(t)
					s.write(t, p.load)
					for run := range *runs {
						f := drain(t, s, &outtail{s: s, label: "outtail", pipelines: p.pipelines}, p.rows*max(1, p.pipelines))
						f.What, f.Run, f.Load, f.At = "growth", run+1, p.axis, p.at
						f.record(t)
					}
				})
			}
		})
	}
}
