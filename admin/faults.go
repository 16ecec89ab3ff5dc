package admin

import (
	"errors"
	"syscall"

	"github.com/outtail/outtail/event"
)

// CodeListen: admin.listen cannot be had.
const CodeListen = "OT7001"

func faultListen(address string, err error) *event.Fault {
	f := &event.Fault{
		Code: CodeListen, Class: event.Environment, Immediate: true, Op: "listen for admin requests", Place: address,
		Text: "the address cannot be used", Err: err,
		Hint: `set admin.listen to HOST:PORT of this machine, or to "" to do without`,
	}
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		f.Text = "the address is in use by another process"
		f.Hint = `stop the other process, or set admin.listen to another port, or to "" to do without`
	case errors.Is(err, syscall.EACCES):
		f.Text = "outtail's user may not listen on this port"
		f.Hint = "set admin.listen to a port above 1023"
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		f.Text = "this machine does not have that address"
	}
	return f
}
