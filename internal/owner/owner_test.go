//go:build unix

package owner

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestWhoseItIs(t *testing.T) {
	dir := t.TempDir()
	require.Equal(t, Me(), Of(dir))
	require.Equal(t, Me(), Of(filepath.Join(dir, "not there")), "the folder's")
	require.Empty(t, Of(filepath.Join(dir, "no", "folder")))
	require.Contains(t, Sudo(dir), "sudo -u USER", "it is ours: nobody knows who would do better")
	if os.Geteuid() != 0 {
		require.Contains(t, Sudo("/"), "sudo -u root outtail")
		return
	}
	require.NoError(t, os.Chown(dir, 54321, 54321)) // a user that has no name
	require.Equal(t, "'#54321'", Of(dir))
	require.Equal(t, "sudo -u '#54321' outtail … ("+dir+" belongs to '#54321', and this is root)", Sudo(dir))
}
