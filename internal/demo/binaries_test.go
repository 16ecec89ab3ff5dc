package demo

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/xml"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/ulikunitz/xz"

	"github.com/outtail/outtail/event"
)

func archived(t *testing.T, headers ...tar.Header) *bytes.Buffer {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, h := range headers {
		content := ""
		if h.Typeflag == tar.TypeReg {
			content = "content of " + h.Name
			h.Size = int64(len(content))
		}
		require.NoError(t, w.WriteHeader(&h))
		_, err := io.WriteString(w, content)
		require.NoError(t, err)
	}
	require.NoError(t, w.Close())
	return &b
}

func TestUnpackingKeepsFilesFoldersLinksAndWhoMayRunWhat(t *testing.T) {
	folder := t.TempDir()
	require.NoError(t, unpackTar(t.Context(), archived(t,
		tar.Header{Name: "share/", Typeflag: tar.TypeDir, Mode: 0o700},
		tar.Header{Name: "bin/postgres", Typeflag: tar.TypeReg, Mode: 0o4755},
		tar.Header{Name: "lib/libpq.so.5.17", Typeflag: tar.TypeReg, Mode: 0o600},
		tar.Header{Name: "lib/libpq.so", Typeflag: tar.TypeSymlink, Linkname: "libpq.so.5.17"},
		tar.Header{Name: "lib/again.so", Typeflag: tar.TypeLink, Linkname: "lib/libpq.so.5.17"},
		tar.Header{Name: "bin/lib", Typeflag: tar.TypeSymlink, Linkname: "../lib"},
		tar.Header{Name: "dev/null", Typeflag: tar.TypeChar},
	), folder))

	for name, mode := range map[string]os.FileMode{"bin/postgres": 0o755, "lib/libpq.so.5.17": 0o644, "share": os.ModeDir | 0o755} {
		info, err := os.Stat(filepath.Join(folder, name))
		require.NoError(t, err)
		require.Equal(t, mode, info.Mode(), name)
	}
	for _, name := range []string{"lib/libpq.so", "lib/again.so", "bin/lib/libpq.so"} {
		content, err := os.ReadFile(filepath.Join(folder, name))
		require.NoError(t, err)
		require.Equal(t, "content of lib/libpq.so.5.17", string(content))
	}
	require.NoFileExists(t, filepath.Join(folder, "dev/null"))
}

func TestUnpackingNeverLeavesTheFolder(t *testing.T) {
	cases := map[string][]tar.Header{
		"a name with ..":        {{Name: "../out", Typeflag: tar.TypeReg}},
		"a name with .. inside": {{Name: "bin/../../out", Typeflag: tar.TypeReg}},
		"an absolute name":      {{Name: "/out", Typeflag: tar.TypeReg}},
		"a link with ..":        {{Name: "l", Typeflag: tar.TypeSymlink, Linkname: ".."}},
		"an absolute link":      {{Name: "l", Typeflag: tar.TypeSymlink, Linkname: "/tmp"}},
		"a hard link with ..":   {{Name: "l", Typeflag: tar.TypeLink, Linkname: "../out"}},
		"a folder outside":      {{Name: "../out/", Typeflag: tar.TypeDir}},
		"links that add up": {
			{Name: "a", Typeflag: tar.TypeSymlink, Linkname: "b/.."},
			{Name: "b", Typeflag: tar.TypeSymlink, Linkname: "."},
			{Name: "a/out", Typeflag: tar.TypeReg},
		},
	}
	for name, headers := range cases {
		t.Run(name, func(t *testing.T) {
			above := t.TempDir()
			folder := filepath.Join(above, "in")
			require.NoError(t, os.Mkdir(folder, 0o755))
			require.Error(t, unpackTar(t.Context(), archived(t, headers...), folder))
			left, err := os.ReadDir(above)
			require.NoError(t, err)
			require.Len(t, left, 1, "only the folder itself")
		})
	}
}

// jar makes what a repository would serve: a zip with a .txz inside.
func jar(t *testing.T) []byte {
	t.Helper()
	var packed, b bytes.Buffer
	x, err := xz.NewWriter(&packed)
	require.NoError(t, err)
	_, err = io.Copy(x, archived(t,
		tar.Header{Name: "bin/initdb", Typeflag: tar.TypeReg, Mode: 0o755},
		tar.Header{Name: "bin/postgres", Typeflag: tar.TypeReg, Mode: 0o755}))
	require.NoError(t, err)
	require.NoError(t, x.Close())
	z := zip.NewWriter(&b)
	_, err = z.Create("META-INF/MANIFEST.MF")
	require.NoError(t, err)
	f, err := z.Create("postgres.txz")
	require.NoError(t, err)
	_, err = f.Write(packed.Bytes())
	require.NoError(t, err)
	require.NoError(t, z.Close())
	return b.Bytes()
}

func TestDownloadTrustsThePinnedSumAlone(t *testing.T) {
	served := jar(t)
	sum := sha256.Sum256(served)
	good := artifact{"some-binaries", hex.EncodeToString(sum[:])}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/maven/"+good.path() {
			http.NotFound(w, r)
			return
		}
		w.Write(served)
	}))
	t.Cleanup(server.Close)
	options := Options{Repository: server.URL + "/maven/", Notes: io.Discard}

	folder := t.TempDir()
	path, err := download(t.Context(), options, good, folder)
	require.NoError(t, err)
	tree := t.TempDir()
	require.NoError(t, unpackJar(t.Context(), path, tree))
	require.NoError(t, holdsPostgres(filepath.Join(tree, "bin")))
	require.NoError(t, os.Remove(path))

	_, err = download(t.Context(), options, artifact{good.name, strings.Repeat("0", 64)}, folder)
	require.ErrorContains(t, err, "SHA-256")
	require.Equal(t, CodeDownload, event.AsFault(err).Code)

	_, err = download(t.Context(), options, artifact{"other", good.sha256}, folder)
	require.ErrorContains(t, err, "404")

	left, err := os.ReadDir(folder)
	require.NoError(t, err)
	require.Empty(t, left, "what cannot be trusted is not kept")
}

func TestDownloadNamesNoSecretOfTheRepository(t *testing.T) {
	options := Options{Repository: "http://somebody:hunter2@127.0.0.1:1/maven", Notes: io.Discard}
	_, err := download(t.Context(), options, artifact{"x", ""}, t.TempDir())
	require.Error(t, err)
	require.NotContains(t, err.Error(), "hunter2")
	require.Contains(t, err.Error(), "127.0.0.1:1")
	require.Contains(t, event.AsFault(err).Hint, "OUTTAIL_MAVEN")
}

func TestAnInterruptedDownloadSaysSo(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { cancel(ErrInterrupted) }))
	t.Cleanup(server.Close)
	_, err := download(ctx, Options{Repository: server.URL, Notes: io.Discard}, artifact{"x", ""}, t.TempDir())
	require.ErrorIs(t, err, ErrInterrupted)
}

func TestMirrorsOfCentralAreAskedBeforeCentral(t *testing.T) {
	const head, tail = `<settings xmlns="http://maven.apache.org/SETTINGS/1.0.0"><mirrors>`, `</mirrors></settings>`
	mirror := func(of, url, more string) string {
		return "<mirror><mirrorOf>" + of + "</mirrorOf><url> " + url + "\n</url>" + more + "</mirror>"
	}
	cases := []struct {
		name, mirrors string
		want          []string
	}{
		{"none", "", nil},
		{"central", mirror("central", "https://m.test/a", ""), []string{"https://m.test/a"}},
		{"everything", mirror("*", "https://m.test/a", ""), []string{"https://m.test/a"}},
		{"everything outside", mirror("external:*", "https://m.test/a", ""), []string{"https://m.test/a"}},
		{"everything but central", mirror("*,!central", "https://m.test/a", ""), nil},
		{"a list", mirror("jboss, central", "https://m.test/a", ""), []string{"https://m.test/a"}},
		{"another repository", mirror("jboss", "https://m.test/a", ""), nil},
		{"blocked", mirror("*", "http://0.0.0.0/", "<blocked>true</blocked>"), nil},
		{"not over HTTP", mirror("*", "s3://bucket", ""), nil},
		{"two", mirror("central", "https://m.test/a", "") + mirror("*", "https://m.test/b", ""), []string{"https://m.test/a", "https://m.test/b"}},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			var settings mavenSettings
			require.NoError(t, xml.Unmarshal([]byte(head+tc.mirrors+tail), &settings))
			require.Equal(t, append(tc.want, centralRepository), repositories(settings))
		})
	}
}

func TestEveryPlatformHasItsOwnPinnedSum(t *testing.T) {
	sums := map[string]bool{}
	for _, platform := range []string{"linux/amd64", "linux/arm64", "darwin/amd64", "darwin/arm64"} {
		goos, goarch, _ := strings.Cut(platform, "/")
		a, ok := artifactFor(goos, goarch)
		require.True(t, ok, platform)
		require.Len(t, a.sha256, 64)
		require.Contains(t, a.path(), goos)
		sums[a.sha256] = true
	}
	require.Len(t, sums, 4)
	_, ok := artifactFor("plan9", "386")
	require.False(t, ok)
}

func install(t *testing.T, bin string) {
	t.Helper()
	require.NoError(t, os.MkdirAll(bin, 0o755))
	for _, name := range []string{"initdb", "postgres"} {
		require.NoError(t, os.WriteFile(filepath.Join(bin, name), nil, 0o755))
	}
}

func TestTheNewestInstalledPostgresFrom14OnIsTheLastResort(t *testing.T) {
	root := t.TempDir()
	patterns := []string{filepath.Join(root, "postgresql/*/bin"), filepath.Join(root, "opt/postgresql@*/bin")}
	require.Empty(t, systemPostgres(patterns))

	install(t, filepath.Join(root, "postgresql/9.6/bin"))
	install(t, filepath.Join(root, "postgresql/13/bin"))
	require.Empty(t, systemPostgres(patterns), "too old")

	install(t, filepath.Join(root, "postgresql/15/bin"))
	require.NoError(t, os.MkdirAll(filepath.Join(root, "postgresql/18/bin"), 0o755)) // client tools only
	require.Equal(t, filepath.Join(root, "postgresql/15/bin"), systemPostgres(patterns))

	install(t, filepath.Join(root, "opt/postgresql@17/bin"))
	require.Equal(t, filepath.Join(root, "opt/postgresql@17/bin"), systemPostgres(patterns))
}

func TestANamedPostgresIsUsedOrRefused(t *testing.T) {
	bin := filepath.Join(t.TempDir(), "bin")
	_, err := findBinaries(t.Context(), Options{PostgresBin: bin}, t.TempDir())
	require.Equal(t, CodeSetting, event.AsFault(err).Code)
	install(t, bin)
	b, err := findBinaries(t.Context(), Options{PostgresBin: bin}, t.TempDir())
	require.NoError(t, err)
	require.Equal(t, bin, b.bin)
	require.Empty(t, b.root, "an installation is not copied")
}
