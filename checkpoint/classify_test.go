package checkpoint

import (
	"errors"
	"fmt"
	"io/fs"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	bolterrors "go.etcd.io/bbolt/errors"

	"github.com/outtail/outtail/event"
	"github.com/outtail/outtail/test/errortable"
)

// Every error that bbolt has, and what is made of it where it opens or writes a file. One that a new version brings fails here until
// somebody has decided about it.
func TestEveryErrorOfBboltIsClassified(t *testing.T) {
	type meaning struct {
		err   error
		open  opened
		write string
	}
	table := map[string]meaning{
		"ErrTimeout":         {bolterrors.ErrTimeout, openedLocked, CodeIO},
		"ErrInvalid":         {bolterrors.ErrInvalid, openedDamaged, CodeIO},
		"ErrChecksum":        {bolterrors.ErrChecksum, openedDamaged, CodeIO},
		"ErrVersionMismatch": {bolterrors.ErrVersionMismatch, openedDamaged, CodeIO},
		"ErrInvalidMapping":  {bolterrors.ErrInvalidMapping, openedDamaged, CodeIO},
		"ErrMaxSizeReached":  {bolterrors.ErrMaxSizeReached, openedNot, CodeDiskFull},
		// What bbolt says of wrong calls. They are ours; the pipeline stops in front of what was not stored.
		"ErrDatabaseNotOpen":    {bolterrors.ErrDatabaseNotOpen, openedNot, CodeIO},
		"ErrDatabaseReadOnly":   {bolterrors.ErrDatabaseReadOnly, openedNot, CodeIO},
		"ErrTxNotWritable":      {bolterrors.ErrTxNotWritable, openedNot, CodeIO},
		"ErrTxClosed":           {bolterrors.ErrTxClosed, openedNot, CodeIO},
		"ErrFreePagesNotLoaded": {bolterrors.ErrFreePagesNotLoaded, openedNot, CodeIO},
		"ErrBucketNotFound":     {bolterrors.ErrBucketNotFound, openedNot, CodeIO},
		"ErrBucketExists":       {bolterrors.ErrBucketExists, openedNot, CodeIO},
		"ErrBucketNameRequired": {bolterrors.ErrBucketNameRequired, openedNot, CodeIO},
		"ErrKeyRequired":        {bolterrors.ErrKeyRequired, openedNot, CodeIO},
		"ErrKeyTooLarge":        {bolterrors.ErrKeyTooLarge, openedNot, CodeIO},
		"ErrValueTooLarge":      {bolterrors.ErrValueTooLarge, openedNot, CodeIO},
		"ErrIncompatibleValue":  {bolterrors.ErrIncompatibleValue, openedNot, CodeIO},
		"ErrSameBuckets":        {bolterrors.ErrSameBuckets, openedNot, CodeIO},
		"ErrDifferentDB":        {bolterrors.ErrDifferentDB, openedNot, CodeIO},
	}
	seen := map[string]bool{}
	for _, m := range errortable.Names(t, "go.etcd.io/bbolt/errors", `^\s+(Err\w+)\s*= errors\.New`) {
		want, decided := table[m[0]]
		require.True(t, decided, "nobody has decided what %s means", m[0])
		seen[m[0]] = true
		require.Equal(t, want.open, judgeOpen(fmt.Errorf("open: %w", want.err)), m[0])
		require.Equal(t, want.write, event.AsFault(faultWrite("save", "f", fmt.Errorf("save: %w", want.err))).Code, m[0])
	}
	require.Len(t, seen, len(table))
}

func TestWhatSystemErrorsMeanForAFile(t *testing.T) {
	for err, want := range map[error]struct {
		open opened
		code string
		what event.Class
	}{
		syscall.ENOSPC:                  {openedNot, CodeDiskFull, event.Retry},
		syscall.EDQUOT:                  {openedNot, CodeDiskFull, event.Retry},
		syscall.EFBIG:                   {openedNot, CodeDiskFull, event.Retry},
		syscall.EROFS:                   {openedNot, CodeReadOnly, event.Config},
		syscall.EACCES:                  {openedNot, CodeReadOnly, event.Config},
		fs.ErrPermission:                {openedNot, CodeReadOnly, event.Config},
		syscall.EIO:                     {openedNot, CodeIO, event.Internal},
		syscall.ENOMEM:                  {openedNot, CodeIO, event.Internal},
		damaged("page 4"):               {openedDamaged, CodeDamaged, event.Safety},
		errors.New("what nobody knows"): {openedNot, CodeIO, event.Internal},
		fmt.Errorf("file resize error: %s", syscall.ENOSPC.Error()): {openedNot, CodeDiskFull, event.Retry},
	} {
		require.Equal(t, want.open, judgeOpen(err), "%v", err)
		f := event.AsFault(faultWrite("save", "f", err))
		require.Equal(t, want.code, f.Code, "%v", err)
		require.Equal(t, want.what, f.Class, "%v", err)
	}
}
