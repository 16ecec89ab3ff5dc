//go:build !linux

package demo

import (
	"os/exec"
	"syscall"
)

// detach gives a child its own process group. There is no signal at the demo's death here: only Linux has it.
func detach(cmd *exec.Cmd, _ syscall.Signal) {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Setpgid = true
}

// residentBytes cannot be told without more ado outside Linux.
func residentBytes(int) int64 { return 0 }
