package demo

import (
	"context"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/decor"
)

// centralRepository is Maven Central.
const centralRepository = "https://repo1.maven.org/maven2"

// stallLimit ends a download of which nothing came for so long.
const stallLimit = 30 * time.Second

// download fetches a jar into folder and yields its path. The repositories are asked in turn; whatever they serve, only
// the pinned sum counts.
func download(ctx context.Context, o Options, a artifact, folder string) (string, error) {
	bases := []string{o.Repository}
	if o.Repository == "" {
		bases = repositories(readMavenSettings())
	}
	var failures []error
	for _, base := range bases {
		path, err := downloadFrom(ctx, o.Notes, strings.TrimRight(base, "/")+"/"+a.path(), a, folder)
		if err == nil {
			return path, nil
		}
		if ctx.Err() != nil {
			return "", context.Cause(ctx)
		}
		failures = append(failures, fmt.Errorf("%s: %w", host(base), err))
	}
	return "", downloadFault(a.name+" "+postgresVersion, errors.Join(failures...))
}

// host is a repository's name without what a URL can carry besides: a mirror's may hold a password (I10).
func host(base string) string {
	_, rest, found := strings.Cut(base, "://")
	if !found {
		return "repository"
	}
	rest, _, _ = strings.Cut(rest, "/")
	return rest[strings.LastIndex(rest, "@")+1:]
}

func downloadFrom(ctx context.Context, notes io.Writer, address string, a artifact, folder string) (path string, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	watchdog := time.AfterFunc(stallLimit, func() { cancel(fmt.Errorf("nothing came for %s", stallLimit)) })
	defer watchdog.Stop()

	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return "", errors.New("the repository's address is not a URL")
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.DialContext = (&net.Dialer{Timeout: 10 * time.Second}).DialContext
	defer transport.CloseIdleConnections()
	response, err := (&http.Client{Transport: transport}).Do(request)
	if err != nil {
		return "", withoutURL(ctx, err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return "", fmt.Errorf("it answers %s", response.Status)
	}

	f, err := os.CreateTemp(folder, "download-*.jar")
	if err != nil {
		return "", err
	}
	defer func() {
		if err != nil {
			os.Remove(f.Name())
		}
	}()
	body, finish := progress(notes, response.Body, response.ContentLength)
	_, err = io.Copy(f, &watched{body, watchdog})
	finish(err == nil)
	if err = errors.Join(err, f.Close()); err != nil {
		return "", withoutURL(ctx, err)
	}
	if err = verify(f.Name(), a.sha256); err != nil {
		return "", err
	}
	return f.Name(), nil
}

// withoutURL drops the address from an HTTP client's error, which may hold a password, and prefers the watchdog's word.
func withoutURL(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	var named *url.Error
	if errors.As(err, &named) {
		return named.Err
	}
	return err
}

// watched keeps a watchdog quiet while bytes come.
type watched struct {
	io.Reader
	watchdog *time.Timer
}

func (w *watched) Read(p []byte) (int, error) {
	n, err := w.Reader.Read(p)
	if n > 0 {
		w.watchdog.Reset(stallLimit)
	}
	return n, err
}

// progress shows a bar on a terminal and one line elsewhere.
func progress(notes io.Writer, body io.Reader, size int64) (io.Reader, func(complete bool)) {
	if !isTerminal(notes) {
		fmt.Fprintf(notes, "  postgres   fetching %s (%.0f MB)\n", postgresVersion, float64(size)/1e6)
		return body, func(bool) {}
	}
	bars := mpb.New(mpb.WithOutput(notes), mpb.WithWidth(64))
	bar := bars.New(size, mpb.BarStyle().Lbound("").Filler("━").Tip("━").Padding("─").Rbound(""),
		mpb.BarRemoveOnComplete(),
		mpb.PrependDecorators(decor.Name("  postgres   fetching "+postgresVersion+" ")),
		mpb.AppendDecorators(decor.CountersKiloByte(" % .1f of % .1f")))
	counted, err := bar.ProxyReader(body)
	if err != nil { // the bar is for the eye only
		bar.Abort(true)
		bars.Wait()
		return body, func(bool) {}
	}
	return counted, func(complete bool) {
		if complete {
			bar.SetTotal(-1, true)
		} else {
			bar.Abort(true)
		}
		bars.Wait()
	}
}

// mavenSettings is the part of a user's settings.xml that says from where artifacts come.
type mavenSettings struct {
	Mirrors []struct {
		Of      string `xml:"mirrorOf"`
		URL     string `xml:"url"`
		Blocked bool   `xml:"blocked"`
	} `xml:"mirrors>mirror"`
}

// readMavenSettings reads ~/.m2/settings.xml; none, or one that cannot be read, names no mirror.
func readMavenSettings() mavenSettings {
	var settings mavenSettings
	home, err := os.UserHomeDir()
	if err != nil {
		return settings
	}
	content, err := os.ReadFile(filepath.Join(home, ".m2", "settings.xml"))
	if err != nil {
		return settings
	}
	if xml.Unmarshal(content, &settings) != nil {
		return mavenSettings{}
	}
	return settings
}

// repositories lists whom to ask: the machine's mirrors of Maven Central first, as Maven itself would, then Central.
func repositories(settings mavenSettings) []string {
	var bases []string
	for _, m := range settings.Mirrors {
		if base := strings.TrimSpace(m.URL); !m.Blocked && strings.HasPrefix(base, "http") && mirrorsCentral(m.Of) {
			bases = append(bases, base)
		}
	}
	return append(bases, centralRepository)
}

// mirrorsCentral reads a mirrorOf list: names, *, external:*, and !name for exceptions.
func mirrorsCentral(of string) bool {
	match := false
	for _, name := range strings.Split(of, ",") {
		switch strings.TrimSpace(name) {
		case "*", "external:*", "central":
			match = true
		case "!central":
			return false
		}
	}
	return match
}
