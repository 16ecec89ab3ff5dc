//go:build !linux || 386

package wal

import (
	"net"
	"time"
)

// minRTT is known on Linux only; without it there is no pacing.
func minRTT(*net.TCPConn) (time.Duration, bool) { return 0, false }

func clampWindow(*net.TCPConn, int) bool { return false }

func lowWater(*net.TCPConn, int) {}
