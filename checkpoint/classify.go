package checkpoint

import (
	"errors"

	bolterrors "go.etcd.io/bbolt/errors"
)

// opened is what an error of opening a bbolt file means; what one of writing means, faultWrite says.
type opened uint8

const (
	// openedNot: the system refuses, or bbolt does for a reason that is not in the file. Nothing is said about its content.
	openedNot opened = iota
	// openedLocked: somebody else has it.
	openedLocked
	// openedDamaged: it is no file of ours any more. It is never replaced or repaired by itself (I5).
	openedDamaged
)

func judgeOpen(err error) opened {
	switch {
	// The file's lock did not come free in time: another process writes.
	case errors.Is(err, bolterrors.ErrTimeout):
		return openedLocked
	// A page, or what a page promises, is not what bbolt wrote: a torn or truncated file, other bytes, a format of another bbolt. A panic or
	// memory fault inside of bbolt is the same thing found later (guard).
	case errors.Is(err, errDamaged), errors.Is(err, bolterrors.ErrInvalid), errors.Is(err, bolterrors.ErrChecksum),
		errors.Is(err, bolterrors.ErrVersionMismatch), errors.Is(err, bolterrors.ErrInvalidMapping):
		return openedDamaged
	// Permissions, the disk, no memory to map it: look at the system.
	default:
		return openedNot
	}
}
