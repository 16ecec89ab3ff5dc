package checkpoint

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
	"syscall"

	bolterrors "go.etcd.io/bbolt/errors"

	"github.com/outtail/outtail/event"
	"github.com/outtail/outtail/internal/owner"
)

// ErrLocked is in the chain of the fault that says that another process uses the data directory (exit code 5).
var ErrLocked = errors.New("data_dir is in use")

// errDamaged marks what was found wrong in a file's content.
var errDamaged = errors.New("damaged")

// The codes of this package.
const (
	CodeLocked      = "OT4001"
	CodeUnusable    = "OT4002"
	CodeDamaged     = "OT4003"
	CodeNewerFormat = "OT4004"
	CodeDiskFull    = "OT4005"
	CodeReadOnly    = "OT4006"
	CodeIO          = "OT4007"
	CodeBackwards   = "OT4008"
	CodeRefused     = "OT4009"
	CodeMigration   = "OT4010"

	CodeParkedDamaged = "OT4011"
	CodeDeadFull      = "OT4012"
	CodeNoDeadLetter  = "OT4013"
	CodeParkedLost    = "OT4014"
	CodeParkedOlder   = "OT4015"
)

func faultLocked(dir, holder string) *event.Fault {
	text := "another outtail process uses this data_dir"
	if holder != "" {
		text += " (" + holder + ")"
	}
	return &event.Fault{
		Code: CodeLocked, Class: event.Usage, Op: "lock data_dir", Place: dir, Text: text, Err: ErrLocked,
		Hint: "give each process a data_dir of its own, or stop the other one first",
	}
}

func faultUnusable(op, place string, err error) *event.Fault {
	f := &event.Fault{
		Code: CodeUnusable, Class: event.Environment, Immediate: true, Op: op, Place: place,
		Text: "the data_dir cannot be used", Err: err,
		Hint: "data_dir must be a directory on a local disk that outtail's user may read and write: check owner, mode and free space",
	}
	if errors.Is(err, fs.ErrPermission) {
		f.Hint = "give the command as the user that runs outtail: " + owner.Sudo(place) + "\nor, where outtail itself is told this: " + f.Hint
	}
	return f
}

func faultDamaged(path string, err error) *event.Fault {
	return &event.Fault{
		Code: CodeDamaged, Class: event.Safety, Op: "open state", Place: path, Text: "state file damaged", Err: err,
		Hint: "outtail never replaces it by itself. What can still be read of it, and then a start from there, which sends again what was sent since:\n" +
			"  outtail checkpoint export -c FILE --pipeline P --salvage --output P.json\n" +
			"  mv " + path + " " + path + ".damaged\n" +
			"  outtail checkpoint import -c FILE --pipeline P --from P.json --reason R\n" +
			"Or, from a backup of both files:\n" +
			"  cp BACKUP/outtail.db BACKUP/parked.db " + filepath.Dir(path) + "/\n" +
			"Or, with the file moved away, from wherever you say:\n" +
			"  outtail checkpoint set -c FILE --pipeline P --to POSITION|slot|now --reason R",
	}
}

func faultNewerFormat(path string, found, known int) *event.Fault {
	return &event.Fault{
		Code: CodeNewerFormat, Class: event.Safety, Op: "open state", Place: path,
		Text: fmt.Sprintf("the state file has format %d, this outtail knows formats up to %d", found, known),
		Hint: "run the outtail version that wrote it, or a later one",
	}
}

func faultMigration(path string, from, known int, err error) *event.Fault {
	return &event.Fault{
		Code: CodeMigration, Class: event.Safety, Op: "migrate state", Place: path,
		Text: fmt.Sprintf("the state file could not be brought from format %d to %d; it is unchanged", from, known), Err: err,
		Hint: "run the outtail version that wrote it, and report this with the message above",
	}
}

func faultOldFormat(path string, found, known int) *event.Fault {
	return &event.Fault{
		Code: CodeMigration, Class: event.Usage, Op: "open state", Place: path,
		Text: fmt.Sprintf("the state file still has format %d, this command reads format %d", found, known),
		Hint: "start `outtail run` once, it brings the file up to date",
	}
}

func faultBackwards(pipeline, text string) *event.Fault {
	return &event.Fault{
		Code: CodeBackwards, Class: event.Internal, Op: "save position", Place: "pipeline " + pipeline, Text: text,
		Hint: "nothing was stored; this is a fault in outtail, please report it with the log around it. " +
			"A restart goes on from the stored position",
	}
}

func faultRefused(op, pipeline, text, hint string) *event.Fault {
	return &event.Fault{Code: CodeRefused, Class: event.Usage, Op: op, Place: "pipeline " + pipeline, Text: text, Hint: hint}
}

// errnoIs looks for a system error in err. When growing the file fails, bbolt passes on only the text of the cause ("file
// resize error: %s"); the text of a system error is then its end, and is compared with the system's own.
func errnoIs(err error, e syscall.Errno) bool {
	return errors.Is(err, e) || strings.HasSuffix(err.Error(), ": "+e.Error())
}

// faultWrite tells apart why a write did not reach the disk.
func faultWrite(op, path string, err error) *event.Fault {
	if f := event.AsFault(err); f != nil {
		return f
	}
	is := func(e syscall.Errno) bool { return errnoIs(err, e) }
	switch {
	case errors.Is(err, errDamaged):
		return faultDamaged(path, err)

	// A full disk passes when somebody makes room: the pipeline holds its position, and sends nothing twice.
	// EFBIG is a limit on the file's size (ulimit -f), EDQUOT a quota; for the operator all are "no room".
	case is(syscall.ENOSPC), is(syscall.EDQUOT), is(syscall.EFBIG), errors.Is(err, bolterrors.ErrMaxSizeReached):
		return &event.Fault{
			Code: CodeDiskFull, Class: event.Retry, Op: op, Place: path, Text: "no room for the state file", Err: err,
			Hint: "make room on the file system of data_dir (or raise the quota or file size limit); outtail goes on by itself",
		}

	// A file system that turned read-only (mount option, or the kernel after an error), or rights that were taken away:
	// somebody must change something outside.
	case is(syscall.EROFS), is(syscall.EACCES), is(syscall.EPERM), errors.Is(err, fs.ErrPermission):
		return &event.Fault{
			Code: CodeReadOnly, Class: event.Config, Op: op, Place: path, Text: "the state file cannot be written", Err: err,
			Hint: "make the file system of data_dir writable for outtail's user; see the kernel's log if it was until now",
		}
	}
	// Anything else, EIO above all: after a failed fsync the kernel may have dropped what was not written and report
	// success next time, so trying again in this process proves nothing. Stop; a restart reads what the disk really has.
	return &event.Fault{
		Code: CodeIO, Class: event.Internal, Op: op, Place: path, Text: "writing the state file failed", Err: err,
		Hint: "look at the disk and the kernel's log, then start outtail again; it goes on from the last position that reached the disk",
	}
}
