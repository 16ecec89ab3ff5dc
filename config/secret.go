package config

import (
	"fmt"
	"io"
	"log/slog"
)

const masked = "***"

// Secret is a text that no formatter shows: fmt, slog, JSON and YAML all see *** (I10).
type Secret struct{ text string }

// NewSecret wraps a text.
func NewSecret(text string) Secret { return Secret{text} }

// Reveal gives the text, for handing it to a client library.
func (s Secret) Reveal() string { return s.text }

// Empty reports whether there is no text.
func (s Secret) Empty() bool { return s.text == "" }

// String is always ***, also for an empty secret.
func (s Secret) String() string { return masked }

// Format keeps every verb, also %#v and %x, from looking inside.
func (s Secret) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, masked) }

// LogValue is for slog.
func (s Secret) LogValue() slog.Value { return slog.StringValue(masked) }

// MarshalText is for encoding/json and everything else that asks for text.
func (s Secret) MarshalText() ([]byte, error) { return []byte(masked), nil }

// MarshalYAML is for YAML.
func (s Secret) MarshalYAML() (any, error) { return masked, nil }
