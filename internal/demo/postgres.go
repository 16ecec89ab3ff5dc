package demo

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
)

// postgresPatience is how long Postgres may take to answer; a loaded machine is slow.
const postgresPatience = 90 * time.Second

// postgres is a running server that belongs to the demo alone.
type postgres struct {
	process  *child
	port     int
	password string
	log      string
	version  string // as the server says
}

// startPostgres makes a cluster below folder and starts it on a free loopback port. It fails with a Fault.
func startPostgres(ctx context.Context, n *nursery, b binaries, folder string) (*postgres, error) {
	who := unprivileged()
	bin := b.bin
	if who != nil && !reachableByAll(folder) {
		return nil, postgresFault("make a place for Postgres", folder, "", errors.New("an unprivileged user, as whom Postgres runs, cannot enter this folder"))
	}
	if who != nil && !reachableByAll(bin) {
		// Root's cache lies below a folder that nobody else may enter.
		if b.root == "" {
			return nil, postgresFault("use the Postgres binaries", bin, "", errors.New("an unprivileged user cannot enter this folder"))
		}
		moved := filepath.Join(folder, "postgres")
		if err := os.CopyFS(moved, os.DirFS(b.root)); err != nil {
			return nil, postgresFault("copy the Postgres binaries", moved, "", err)
		}
		bin = filepath.Join(moved, "bin")
	}
	home := filepath.Join(folder, "pg")
	if err := os.Mkdir(home, 0o700); err != nil {
		return nil, postgresFault("make a folder", home, "", err)
	}
	p := &postgres{password: rand.Text(), log: filepath.Join(folder, "postgres.log")}
	secret := filepath.Join(home, "password")
	if err := os.WriteFile(secret, []byte(p.password+"\n"), 0o600); err != nil {
		return nil, postgresFault("write a file", secret, "", err)
	}
	if who != nil {
		for _, path := range []string{home, secret} {
			if err := os.Chown(path, int(who.Uid), int(who.Gid)); err != nil {
				return nil, postgresFault("give a file to an unprivileged user", path, "", err)
			}
		}
	}

	data := filepath.Join(home, "data")
	initdb := command(filepath.Join(bin, "initdb"), home, who,
		"-D", data, "-U", "postgres", "-E", "UTF8", "--no-locale", "-A", "scram-sha-256", "--pwfile", secret, "--no-sync")
	made, err := n.run(initdb, p.log, syscall.SIGKILL)
	if err != nil {
		return nil, postgresFault("run initdb", bin, "", err)
	}
	if err := awaitEnd(ctx, made); err != nil {
		return nil, postgresFault("run initdb", bin, p.tail(), err)
	}
	if err := os.Remove(secret); err != nil {
		return nil, postgresFault("remove a file", secret, "", err)
	}

	// A port that was free a moment ago can be taken by somebody else: then once more with another.
	for try := 0; ; try++ {
		err := p.launch(ctx, n, bin, home, data, who)
		if err == nil {
			return p, nil
		}
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if try == 2 || !strings.Contains(p.tail(), "could not bind") {
			return nil, postgresFault("start Postgres", data, p.tail(), err)
		}
	}
}

// launch starts the server and waits until it answers.
func (p *postgres) launch(ctx context.Context, n *nursery, bin, home, data string, who *syscall.Credential) error {
	port, err := freePort()
	if err != nil {
		return err
	}
	p.port = port
	arguments := []string{"-D", data}
	for _, setting := range []string{
		fmt.Sprintf("port=%d", port), "listen_addresses=127.0.0.1", "unix_socket_directories=", "wal_level=logical",
		"max_connections=40", "max_wal_senders=4", "max_replication_slots=4", "shared_buffers=32MB",
		"logging_collector=off", "log_min_messages=warning", "max_wal_size=256MB",
	} {
		arguments = append(arguments, "-c", setting)
	}
	p.process, err = n.run(command(filepath.Join(bin, "postgres"), home, who, arguments...), p.log, syscall.SIGQUIT)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, postgresPatience, fmt.Errorf("it did not answer within %s", postgresPatience))
	defer cancel()
	for {
		if p.version, err = p.ask(ctx); err == nil {
			return nil
		}
		select {
		case <-p.process.ended:
			return fmt.Errorf("it ended with %s", p.process.outcome())
		case <-ctx.Done():
			p.stop(false)
			return context.Cause(ctx)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

func (p *postgres) ask(ctx context.Context) (string, error) {
	c, err := p.connect(ctx, "postgres", "postgres")
	if err != nil {
		return "", err
	}
	defer c.Close(ctx)
	var version string
	return version, c.QueryRow(ctx, "SHOW server_version").Scan(&version)
}

// connect opens a session.
func (p *postgres) connect(ctx context.Context, user, database string) (*pgx.Conn, error) {
	config, err := pgx.ParseConfig(fmt.Sprintf("host=127.0.0.1 port=%d user=%s database=%s sslmode=disable connect_timeout=10", p.port, user, database))
	if err != nil {
		return nil, err
	}
	config.Password = p.password
	return pgx.ConnectConfig(ctx, config)
}

// stop ends the server: quietly where there is time, at once where there is not. Nothing of it is left running.
func (p *postgres) stop(quietly bool) {
	if p.process == nil {
		return
	}
	if quietly {
		p.process.stop(10*time.Second, syscall.SIGINT, syscall.SIGQUIT) // fast, then immediate shutdown
		return
	}
	p.process.stop(time.Second, syscall.SIGQUIT)
}

func (p *postgres) tail() string { return logTail(p.log, 12) }

// command runs with an environment of its own: the user's PG* variables mean other servers.
func command(path, folder string, who *syscall.Credential, arguments ...string) *exec.Cmd {
	cmd := exec.Command(path, arguments...)
	cmd.Dir = folder
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "LC_ALL=C", "TZ=UTC", "HOME=" + folder}
	as(cmd, who)
	return cmd
}

// awaitEnd waits for a process that ends by itself, and ends it with ctx.
func awaitEnd(ctx context.Context, c *child) error {
	select {
	case <-c.ended:
		return c.err
	case <-ctx.Done():
		c.kill()
		return context.Cause(ctx)
	}
}

// freePort names a loopback port that nobody listens on just now.
func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}

// reachableByAll reports whether everybody may enter a folder and all above it.
func reachableByAll(folder string) bool {
	for path := filepath.Clean(folder); ; path = filepath.Dir(path) {
		info, err := os.Stat(path)
		if err != nil || info.Mode()&fs.FileMode(0o001) == 0 {
			return false
		}
		if path == filepath.Dir(path) {
			return true
		}
	}
}
