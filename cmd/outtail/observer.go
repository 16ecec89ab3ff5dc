package main

import (
	"time"

	"github.com/outtail/outtail/event"
	"github.com/outtail/outtail/pipeline"
)

var observer nothing

type nothing struct{}

func (nothing) State(string, pipeline.State)                 {}
func (nothing) Read(string, int)                             {}
func (nothing) Filtered(string, string, int)                 {}
func (nothing) Sent(string, string, int)                     {}
func (nothing) Acked(string, string, int)                    {}
func (nothing) SendError(string, event.Class)                {}
func (nothing) SendUnknown(string, int)                      {}
func (nothing) Latency(string, time.Duration, time.Duration) {}
func (nothing) InFlight(string, int, int64)                  {}
func (nothing) OldestUnacked(string, time.Duration)          {}
func (nothing) Saved(string, time.Duration, time.Time)       {}
func (nothing) Lag(string, float64, pipeline.Lag)            {}
func (nothing) Reconnect(string)                             {}
