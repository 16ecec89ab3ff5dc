//go:build !unix

package checkpoint

import "os"

// lockDir has nothing to do where there is no flock: bbolt's own lock on the state file keeps a second process out.
func lockDir(string) (*os.File, error) { return nil, nil }

func abandon(f *os.File) { _ = f.Close() }

func lockShared(*os.File) (bool, error) { return true, nil }
