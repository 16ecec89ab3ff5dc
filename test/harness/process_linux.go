package harness

import (
	"os"
	"syscall"
)

// diesWithUs makes the kernel kill a process when the test binary is killed.
func diesWithUs() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }

// peakRSS is in bytes; Linux counts ru_maxrss in KiB.
func peakRSS(s *os.ProcessState) int64 {
	if u, ok := s.SysUsage().(*syscall.Rusage); ok {
		return u.Maxrss << 10
	}
	return 0
}
