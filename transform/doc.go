// Package transform turns a routed row into a message: value, headers and timestamp. It is pure: no clock, network or
// file; what it makes of a row depends on the row and its transaction only, so that every delivery of an event carries
// the same identity (I8).
package transform
