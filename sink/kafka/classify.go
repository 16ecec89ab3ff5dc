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
	// refusedTopic: an ACL is missing, or topic and producer do not fit each other; everything of the topic waits.
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
		errors.Is(err, kerr.InvalidTimestamp), errors.Is(err, kerr.CorruptMessage), errors.Is(err, kerr.InvalidTopicException):
		return refusedRecord
	// Nobody's fault but an administrator's; the record is as good as before once the ACL is there.
	case errors.Is(err, kerr.TopicAuthorizationFailed),
		// A broker-side rule about the topic, a codec that the broker or the topic does not take, a topic whose message.format.version
		// is too old for headers: what refuses one record for these refuses all, and parking them one by one would mend nothing.
		errors.Is(err, kerr.PolicyViolation), errors.Is(err, kerr.UnsupportedCompressionType), errors.Is(err, kerr.UnsupportedForMessageFormat):
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

// lookup classifies what the cluster, which has so many brokers, answered about a topic.
func (c *config) lookup(name string, brokers int, err error) *event.Fault {
	switch {
	// It does not exist, or did under another id: its events wait until somebody creates it.
	case errors.Is(err, kerr.UnknownTopicOrPartition), errors.Is(err, kerr.UnknownTopicID):
		return c.topicMissing(name, brokers)
	// An ACL is missing; some brokers answer INVALID_TOPIC_EXCEPTION for names that their authorizer keeps to itself.
	case errors.Is(err, kerr.TopicAuthorizationFailed), errors.Is(err, kerr.InvalidTopicException):
		return c.topicRefused(name, err)
	// No leader yet (LEADER_NOT_AVAILABLE), a broker that starts, and whatever else passes: asked again, for ever.
	default:
		return unreachable(c.Brokers, "topic "+name+" is not ready", err)
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
	// Nothing failed, and nothing is answered either.
	case err == nil:
		return unreachable(brokers, text, nil)
	// The broker knows neither mechanism nor user, refuses the password, or was spoken to without a login.
	case errors.Is(err, kerr.SaslAuthenticationFailed), errors.Is(err, kerr.UnsupportedSaslMechanism),
		errors.Is(err, kerr.IllegalSaslState):
		return saslRefused(brokers, err)
	// The user may log in and not produce: an ACL on the cluster is missing (IdempotentWrite, before 3.0).
	case errors.Is(err, kerr.ClusterAuthorizationFailed), errors.Is(err, kerr.TransactionalIDAuthorizationFailed):
		return c.producerRefused(err)
	// One side speaks TLS and the other does not, or a certificate does not fit.
	case errors.Is(err, errHandshakeCut), errors.As(err, &record), errors.As(err, &alert), errors.As(err, &cert), errors.As(err, &authority),
		errors.As(err, &hostname), errors.As(err, &certIsOver):
		return c.tlsRefused(err)
	// A broker that hangs up at the first bytes of TLS expects none, or is restarting: what is held meanwhile goes out all
	// the same. Without TLS it may also be a port whose broker is down (behind a proxy); the cause's own text asks whether
	// TLS or SASL is missing.
	case errors.As(err, &first) && c.tls != nil:
		return c.tlsRefused(err)
	case errors.As(err, &first):
		text += "; a broker hung up, as one does that is only starting, or that expects TLS or a login"
	}
	// Refused, unknown host, timeout, a broker that starts or stops: tried again, for ever.
	return unreachable(brokers, text, err)
}
