package admin

import (
	"encoding/json"
	"net/http"
	"time"
)

// PipelineStatus is what one pipeline is doing.
type PipelineStatus struct {
	Name  string
	State string
	// Ready: it streams, or waits as a standby.
	Ready bool
	// Reasons why it is not ready.
	Reasons []Reason
}

// Reason is one thing that keeps a pipeline from working.
type Reason struct {
	Code  string
	Text  string
	Hint  string
	Since time.Time
}

// CodeNotStreaming is the reason of a pipeline that is not ready and does not say why: it is starting or ending.
const CodeNotStreaming = "OT7002" // a pipeline is starting or ending, or none runs yet

// Entry is one reason in the list that /readyz answers. Pipeline is empty where it concerns none in particular.
type Entry struct {
	Pipeline string    `json:"pipeline,omitempty"`
	Code     string    `json:"code"`
	Text     string    `json:"text"`
	Since    time.Time `json:"since"`
	Hint     string    `json:"hint,omitempty"`
}

// unready lists why the process is not ready; nothing where it is. Every pipeline that is not ready has at least one
// entry, so that a list without entries and a ready process are the same.
func unready(status []PipelineStatus, started time.Time) []Entry {
	entries := []Entry{} // "[]" in JSON, not null
	if len(status) == 0 {
		entries = append(entries, Entry{Code: CodeNotStreaming, Text: "no pipeline runs yet", Since: started.UTC()})
	}
	for _, p := range status {
		if p.Ready {
			continue
		}
		for _, r := range p.Reasons {
			entries = append(entries, Entry{Pipeline: p.Name, Code: r.Code, Text: r.Text, Since: r.Since.UTC(), Hint: r.Hint})
		}
		if len(p.Reasons) == 0 {
			entries = append(entries, Entry{Pipeline: p.Name, Code: CodeNotStreaming, Text: "the pipeline is " + p.State, Since: started.UTC()})
		}
	}
	return entries
}

func readyz(status func() []PipelineStatus, started time.Time) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		entries := unready(status(), started)
		w.Header().Set("Content-Type", "application/json")
		if len(entries) > 0 {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		enc := json.NewEncoder(w)
		enc.SetEscapeHTML(false)
		_ = enc.Encode(entries) // whoever asked has gone
	})
}
