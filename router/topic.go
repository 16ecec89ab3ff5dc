package router

import "strings"

// maxTopics bounds how many topics that rows chose are remembered; more are still routed, at the price of an allocation.
const maxTopics = 4096

// ValidTopic applies Kafka's rule (org.apache.kafka.common.internals.Topic): 1 to 249 of [a-zA-Z0-9._-], neither "."
// nor "..".
func ValidTopic(s string) bool {
	if s == "" || len(s) > 249 || s == "." || s == ".." {
		return false
	}
	for i := range len(s) {
		switch c := s[i]; {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '.', c == '_', c == '-':
		default:
			return false
		}
	}
	return true
}

// topics gives one string per topic that rows name, checked once.
type topics map[string]string

// intern returns the topic's one string; false where it is no topic name.
func (t topics) intern(b []byte) (string, bool) {
	if s, ok := t[string(b)]; ok {
		return s, true
	}
	s := strings.Clone(string(b))
	if !ValidTopic(s) {
		return s, false
	}
	if len(t) >= maxTopics {
		clear(t)
	}
	t[s] = s
	return s, true
}
