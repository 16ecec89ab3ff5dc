// Package router decides where an event goes: topic, key and partition by the first route that matches. It is pure: no
// clock, network or file, and the same event always gets the same answer, so that a redelivery goes where the first
// delivery went (I8) and the order per key holds (I3).
package router
