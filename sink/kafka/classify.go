package kafka

import (
	"crypto/tls"
	"crypto/x509"
	"errors"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/outtail/outtail/event"
)

// verdict is what a failed promise means.
type verdict uint8

const (
	// interruptedClient: neither record nor topic is to blame; a new client takes over.
	interruptedClient verdict = iota
	// refusedRecord: some record of those that failed together is to blame.
	refusedRecord
	// refusedTopic: an ACL is missing; everything of the topic waits.
	refusedTopic
	// recreatedTopic: the topic that the client knew is gone; the one of its name is another.
	recreatedTopic
)

// judge classifies the error of a promise.
func judge(err error) verdict {
	switch {
	// The batch or a record in it breaks a rule of the topic or of the protocol. Sending it again unchanged gives the same
	// answer, so somebody must decide about the record (policy); the others of the batch are innocent. CORRUPT_MESSAGE is
	// how brokers answer a compacted topic's missing key in old versions, and a broken batch.
	case errors.Is(err, kerr.MessageTooLarge), errors.Is(err, kerr.RecordListTooLarge), errors.Is(err, kerr.InvalidRecord),
		errors.Is(err, kerr.InvalidTimestamp), errors.Is(err, kerr.CorruptMessage), errors.Is(err, kerr.InvalidTopicException),
		errors.Is(err, kerr.UnsupportedForMessageFormat), errors.Is(err, kerr.UnsupportedCompressionType):
		return refusedRecord
	// Nobody's fault but an administrator's; the record is as good as before once the ACL is there. POLICY_VIOLATION is a
	// broker-side rule about the topic.
	case errors.Is(err, kerr.TopicAuthorizationFailed), errors.Is(err, kerr.PolicyViolation):
		return refusedTopic
	// The client gives this once it has seen another topic id under the name.
	case errors.Is(err, kerr.UnknownTopicID), errors.Is(err, kerr.UnknownTopicOrPartition):
		return recreatedTopic
	// Refused producer id, fenced epoch, client closed, connection errors while nothing was known of the outcome of the
	// metadata or id request, an explicit partition that the client does not know yet: nothing is lost or decided.
	default:
		return interruptedClient
	}
}

// connection classifies an error of reaching or talking to brokers.
func (c *config) connection(text string, err error) *event.Fault {
	brokers := c.Brokers
	var (
		first      *kgo.ErrFirstReadEOF
		record     tls.RecordHeaderError
		alert      tls.AlertError
		cert       *tls.CertificateVerificationError
		authority  x509.UnknownAuthorityError
		hostname   x509.HostnameError
		certIsOver x509.CertificateInvalidError
	)
	switch {
	case err == nil:
		return unreachable(brokers, text, nil)
	case errors.Is(err, kerr.SaslAuthenticationFailed), errors.Is(err, kerr.UnsupportedSaslMechanism),
		errors.Is(err, kerr.IllegalSaslState):
		return saslRefused(brokers, err)
	case errors.Is(err, kerr.ClusterAuthorizationFailed), errors.Is(err, kerr.TransactionalIDAuthorizationFailed):
		return producerRefused(brokers, err)
	case errors.Is(err, errHandshakeCut), errors.As(err, &record), errors.As(err, &alert), errors.As(err, &cert), errors.As(err, &authority),
		errors.As(err, &hostname), errors.As(err, &certIsOver):
		return tlsRefused(brokers, err)
	// A broker that hangs up at the first bytes of TLS expects none, or is restarting: what is held meanwhile goes out all
	// the same. Without TLS it may also be a port whose broker is down (behind a proxy); the cause's own text asks whether
	// TLS or SASL is missing.
	case errors.As(err, &first) && c.tls != nil:
		return tlsRefused(brokers, err)
	}
	return unreachable(brokers, text, err)
}
