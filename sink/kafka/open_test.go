package kafka

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/outtail/outtail/event"
	"github.com/outtail/outtail/sink/sinktest"
	"github.com/outtail/outtail/test/harness"
)

func TestOpenGivesTheClustersID(t *testing.T) {
	c := cluster(t, kfake.ClusterID("blue"))
	s, err := New(Options{Brokers: c.ListenAddrs(), Acks: sinktest.NewLedger()})
	require.NoError(t, err)
	defer s.Close()
	id, err := s.Open(context.Background())
	require.NoError(t, err)
	require.Equal(t, event.SinkID{Kind: "kafka", ClusterID: "blue"}, id)
}

// The rows about TLS are B151, of brokers: what was asked for, or nothing.
func TestOpenSaysWhyNobodyAnswers(t *testing.T) {
	ca, server := authority(t)
	ours := harness.NewAuthority(t, "ours")
	cert, key := ours.Server(t, "127.0.0.1", time.Now().Add(-time.Hour))
	pair, err := tls.X509KeyPair([]byte(cert), []byte(key))
	require.NoError(t, err)
	expired := cluster(t, kfake.TLS(&tls.Config{Certificates: []tls.Certificate{pair}})).ListenAddrs()
	overTLS := cluster(t, kfake.TLS(server)).ListenAddrs()
	login := cluster(t, kfake.EnableSASL(), kfake.Superuser("SCRAM-SHA-256", "outtail", "right")).ListenAddrs()
	foreignCA, _ := authority(t)

	for name, c := range map[string]struct {
		options Options
		code    string
		class   event.Class
	}{
		"nobody listens":               {Options{Brokers: []string{unused(t)}}, "OT5001", event.Retry},
		"the name does not resolve":    {Options{Brokers: []string{"no-such-host.invalid:9092"}}, "OT5001", event.Retry},
		"the user's password is wrong": {Options{Brokers: login, SASL: SASL{"scram-sha-256", "outtail", "wrong"}}, "OT5003", event.Config},
		"the mechanism is not offered": {Options{Brokers: login, SASL: SASL{"plain", "outtail", "right"}}, "OT5003", event.Config},
		"the CA is another":            {Options{Brokers: overTLS, TLS: TLS{Enabled: true, CA: foreignCA}}, "OT5002", event.Config},
		"the broker's name is another": {Options{Brokers: overTLS, TLS: TLS{Enabled: true, CA: ca, ServerName: "elsewhere"}}, "OT5002", event.Config},
		"the certificate has expired":  {Options{Brokers: expired, TLS: TLS{Enabled: true, CA: ours.File(t)}}, "OT5002", event.Config},
		"the broker speaks no TLS":     {Options{Brokers: hangsUp(t), TLS: TLS{Enabled: true, CA: ca}}, "OT5002", event.Config},
		"the broker speaks TLS only":   {Options{Brokers: overTLS}, "OT5001", event.Retry},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c.options.Acks = sinktest.NewLedger()
			s, err := New(c.options)
			require.NoError(t, err)
			defer s.Close()
			_, err = s.Open(context.Background())
			f := event.AsFault(err)
			require.NotNil(t, f, "%v", err)
			require.Equal(t, c.code, f.Code, "%v", err)
			require.Equal(t, c.class, f.Class)
			require.NotContains(t, f.Error(), "wrong")
			if name == "the broker speaks TLS only" {
				require.Contains(t, f.Error(), "is TLS missing?")
				require.Contains(t, f.Error(), "only starting")
			}
			require.Error(t, s.Send(context.Background(), sinktest.Message(1, "orders", "a", "x")), "not open")
		})
	}
}

func TestOpenIsTriedAgainAfterItFailed(t *testing.T) {
	addr := unused(t)
	s, err := New(Options{Brokers: []string{addr}, Acks: sinktest.NewLedger()})
	require.NoError(t, err)
	defer s.Close()
	_, err = s.Open(context.Background())
	require.Equal(t, event.Retry, event.ClassOf(err))
	_, port, err := net.SplitHostPort(addr)
	require.NoError(t, err)
	n, err := net.LookupPort("tcp", port)
	require.NoError(t, err)
	cluster(t, kfake.Ports(n))
	_, err = s.Open(context.Background())
	require.NoError(t, err)
}

func TestSecureBrokersAreSentTo(t *testing.T) {
	ca, server := authority(t)
	for name, c := range map[string]struct {
		broker  []kfake.Opt
		options Options
	}{
		"TLS":                  {[]kfake.Opt{kfake.TLS(server)}, Options{TLS: TLS{Enabled: true, CA: ca}}},
		"SASL PLAIN":           {[]kfake.Opt{kfake.EnableSASL(), kfake.Superuser("PLAIN", "u", "p")}, Options{SASL: SASL{"plain", "u", "p"}}},
		"SASL SCRAM-SHA-256":   {[]kfake.Opt{kfake.EnableSASL(), kfake.Superuser("SCRAM-SHA-256", "u", "p")}, Options{SASL: SASL{"scram-sha-256", "u", "p"}}},
		"SASL SCRAM-SHA-512":   {[]kfake.Opt{kfake.EnableSASL(), kfake.Superuser("SCRAM-SHA-512", "u", "p")}, Options{SASL: SASL{"scram-sha-512", "u", "p"}}},
		"a client certificate": {[]kfake.Opt{kfake.TLS(demanding(t, server, ca))}, Options{TLS: TLS{Enabled: true, CA: ca, Cert: filepath.Join(filepath.Dir(ca), "cert.pem"), Key: filepath.Join(filepath.Dir(ca), "key.pem")}}},
	} {
		t.Run(name, func(t *testing.T) {
			r := setUp(t, cluster(t, append(c.broker, kfake.SeedTopics(1, "orders"))...), func(o *Options) {
				o.TLS, o.SASL = c.options.TLS, c.options.SASL
			})
			r.send(1, "orders", "a")
			r.flush()
			require.True(t, r.ledger.IsAcked(1))
		})
	}
}

func TestOptionsAreCheckedWithoutConnecting(t *testing.T) {
	for name, change := range map[string]func(*Options){
		"no brokers":            func(o *Options) { o.Brokers = nil },
		"nobody takes the acks": func(o *Options) { o.Acks = nil },
		"unknown compression":   func(o *Options) { o.Compression = "brotli" },
		"unknown mechanism":     func(o *Options) { o.SASL.Mechanism = "gssapi" },
		"no such CA":            func(o *Options) { o.TLS = TLS{Enabled: true, CA: "/nowhere/ca.pem"} },
		"a key alone":           func(o *Options) { o.TLS = TLS{Enabled: true, Key: "/nowhere/key.pem"} },
	} {
		t.Run(name, func(t *testing.T) {
			o := Options{Brokers: []string{"localhost:9092"}, Acks: sinktest.NewLedger()}
			change(&o)
			_, err := New(o)
			require.Equal(t, event.Usage, event.ClassOf(err), "%v", err)
		})
	}
}

// unused gives a loopback address on which nobody listens.
func unused(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	return l.Addr().String()
}

// hangsUp listens and ends every connection at its first bytes, as Kafka does where they are no request.
func hangsUp(t *testing.T) []string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	done := make(chan struct{})
	t.Cleanup(func() {
		_ = l.Close()
		<-done
	})
	go func() { // ends with the listener
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = c.Read(make([]byte, 64))
			_ = c.Close()
		}
	}()
	return []string{l.Addr().String()}
}

// authority makes a CA file, a certificate for 127.0.0.1 beside it (cert.pem, key.pem), and a server's configuration with it.
func authority(t *testing.T) (ca string, server *tls.Config) {
	t.Helper()
	dir := t.TempDir()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	require.NoError(t, err)
	secret, err := x509.MarshalECPrivateKey(key)
	require.NoError(t, err)
	cert := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	private := pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: secret})
	for name, b := range map[string][]byte{"ca.pem": cert, "cert.pem": cert, "key.pem": private} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), b, 0o600))
	}
	pair, err := tls.X509KeyPair(cert, private)
	require.NoError(t, err)
	return filepath.Join(dir, "ca.pem"), &tls.Config{Certificates: []tls.Certificate{pair}}
}

// demanding is server, asking for a certificate of ca.
func demanding(t *testing.T, server *tls.Config, ca string) *tls.Config {
	t.Helper()
	b, err := os.ReadFile(ca)
	require.NoError(t, err)
	c := server.Clone()
	c.ClientAuth, c.ClientCAs = tls.RequireAndVerifyClientCert, x509.NewCertPool()
	require.True(t, c.ClientCAs.AppendCertsFromPEM(b))
	return c
}
