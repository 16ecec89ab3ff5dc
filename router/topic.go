package router

import (
	"strings"

	"github.com/outtail/outtail/internal/topicname"
)

// maxTopics bounds how many topics that rows chose are remembered; more are still routed, at the price of an allocation.
const maxTopics = 4096

// topics gives one string per topic that rows name, checked once.
type topics map[string]string

// intern returns the topic's one string; false where it is no topic name.
func (t topics) intern(b []byte) (string, bool) {
	if s, ok := t[string(b)]; ok {
		return s, true
	}
	s := strings.Clone(string(b))
	if !topicname.Valid(s) {
		return s, false
	}
	if len(t) >= maxTopics {
		clear(t)
	}
	t[s] = s
	return s, true
}
