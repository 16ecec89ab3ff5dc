package pipeline

// State is what a pipeline is doing.
type State uint8

// The states. A pipeline begins in Starting; Stopped and Failed are final.
const (
	Starting  State = iota // connecting for the first time
	Streaming              // reading, sending, saving
	Degraded               // alive, but something holds it up: see its reasons
	Paused                 // told to wait
	Draining               // told to stop; waiting for acks
	Stopped                // ended cleanly
	Failed                 // ended by a fault; only a person or a restart goes on
)

var stateNames = [...]string{"starting", "streaming", "degraded", "paused", "draining", "stopped", "failed"}

// String is the state's name in logs, metrics and JSON.
func (s State) String() string {
	if int(s) < len(stateNames) {
		return stateNames[s]
	}
	return "unknown"
}

// States lists all states.
func States() []State {
	return []State{Starting, Streaming, Degraded, Paused, Draining, Stopped, Failed}
}

// transitions is the one table of what may follow what; docs/ARCHITECTURE.md draws it.
var transitions = map[State][]State{
	Starting:  {Streaming, Degraded, Draining, Failed},
	Streaming: {Degraded, Paused, Draining, Failed},
	Degraded:  {Streaming, Paused, Draining, Failed},
	Paused:    {Streaming, Degraded, Draining, Failed},
	Draining:  {Stopped, Failed},
}

func (s State) mayBecome(to State) bool {
	for _, t := range transitions[s] {
		if t == to {
			return true
		}
	}
	return false
}
