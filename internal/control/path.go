package control

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// SocketName is the socket's name in data_dir.
const SocketName = "outtail.sock"

// maxPath is what fits into sun_path everywhere: 104 bytes with the end mark on the BSDs and macOS, 108 on Linux.
const maxPath = 103

// reachable gives a name of dir/name that fits into a socket address: as it is, relative to the working directory, or
// through an open descriptor of the directory where the system shows those as files (Linux). release gives the
// descriptor back; the name is good until then.
func reachable(dir, name string) (path string, release func(), err error) {
	release = func() {}
	path = filepath.Join(dir, name)
	if len(path) <= maxPath {
		return path, release, nil
	}
	if wd, err := os.Getwd(); err == nil {
		if abs, err := filepath.Abs(path); err == nil {
			if rel, err := filepath.Rel(wd, abs); err == nil && len(rel) <= maxPath {
				return rel, release, nil
			}
		}
	}
	d, err := os.Open(dir)
	if errors.Is(err, fs.ErrPermission) {
		return "", release, err
	}
	if err == nil {
		alias := fmt.Sprintf("/proc/self/fd/%d", d.Fd())
		here, err1 := os.Stat(alias)
		there, err2 := d.Stat()
		if err1 == nil && err2 == nil && os.SameFile(here, there) {
			return filepath.Join(alias, name), func() { _ = d.Close() }, nil
		}
		_ = d.Close()
	}
	return "", release, faultPath(path)
}
