// Package topicname knows what may be called a topic.
package topicname

// Rule is the rule in words, for hints.
const Rule = "a topic has 1 to 249 of the characters a-z A-Z 0-9 . _ - and is neither . nor .."

// Valid applies Kafka's rule (org.apache.kafka.common.internals.Topic).
func Valid(s string) bool {
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
