package demo

import (
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
)

// detach gives a child its own process group and the signal that it gets when the demo dies.
func detach(cmd *exec.Cmd, lastWish syscall.Signal) {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Setpgid = true
	cmd.SysProcAttr.Pdeathsig = lastWish
}

// residentBytes is a process's resident memory; 0 where it cannot be told.
func residentBytes(pid int) int64 {
	content, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/statm")
	if err != nil {
		return 0
	}
	fields := strings.Fields(string(content))
	if len(fields) < 2 {
		return 0
	}
	pages, err := strconv.ParseInt(fields[1], 10, 64)
	if err != nil {
		return 0
	}
	return pages * int64(os.Getpagesize())
}
