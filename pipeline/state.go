package pipeline

// State is what a pipeline is doing.
type State uint8

const (
	Starting State = iota
	Streaming
	Degraded
	Paused
	Draining
	Stopped
	Failed
)

var stateNames = [...]string{"starting", "streaming", "degraded", "paused", "draining", "stopped", "failed"}

// String is the state's name in logs, metrics and JSON.
func (s State) String() string { return stateNames[s] }

// States lists all states.
func States() []State {
	return []State{Starting, Streaming, Degraded, Paused, Draining, Stopped, Failed}
}
