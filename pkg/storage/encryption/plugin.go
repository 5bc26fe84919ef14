package encryption

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	kms "k8s.io/kms/apis/v2"
)

const (
	pollHealthy   = 20 * time.Second // between questions for a plugin's status
	pollSick      = 3 * time.Second
	writeLifetime = 3 * time.Minute // how long a seed may write after the plugin's last good word
	dialMost      = 3 * time.Second // between tries to connect
)

// plugin is a KMS v2 provider. The plugin's process only ever encrypts and
// decrypts seeds; the values are encrypted here, each by a key derived from
// the seed. A seed is made when the server starts and when the plugin's key
// changes.
type plugin struct {
	name    string
	client  kms.KeyManagementServiceClient
	timeout time.Duration
	now     func() time.Time
	log     *slog.Logger
	metrics *metrics
	close   func() error

	writer atomic.Pointer[writer] // nil: no seed yet
	seeds  seedCache

	mu      sync.Mutex            // one status at a time
	version string                // that of the first status
	last    atomic.Pointer[error] // of the last status
}

// writer is the seed that writes.
type writer struct {
	cipher      localCipher
	keyID       string
	source      []byte // the seed, encrypted
	annotations map[string][]byte
	expires     time.Time
}

var errUnasked = errors.New("it has not been asked for its status yet")

// newPlugin makes the connection, which comes about by itself.
func newPlugin(c *KMSConfiguration, k *Config, m *metrics) (*plugin, error) {
	socket, err := c.socket()
	if err != nil {
		return nil, err
	}
	if socket[0] == '@' {
		socket = "\x00" + socket[1:]
	}
	pace := backoff.DefaultConfig
	pace.MaxDelay = dialMost
	conn, err := grpc.NewClient("passthrough:///"+c.Name,
		grpc.WithAuthority("localhost"),
		grpc.WithTransportCredentials(insecure.NewCredentials()), // a Unix socket: the file's owner guards it
		grpc.WithDefaultCallOptions(grpc.WaitForReady(true)),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: pace, MinConnectTimeout: dialMost}),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", socket)
		}),
		grpc.WithUnaryInterceptor(m.plugin(c.Name)),
	)
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", c.Endpoint, err)
	}
	return pluginOf(c, k, m, kms.NewKeyManagementServiceClient(conn), conn.Close), nil
}

func pluginOf(c *KMSConfiguration, k *Config, m *metrics, client kms.KeyManagementServiceClient, close func() error) *plugin {
	p := &plugin{
		name: c.Name, client: client, timeout: c.timeout(),
		now: k.Now, log: k.Log.With("kms", c.Name), metrics: m, close: close,
	}
	p.last.Store(&errUnasked)
	return p
}

// run asks for the status until ctx ends, then closes the connection.
func (p *plugin) run(ctx context.Context) {
	for ctx.Err() == nil {
		wait := pollHealthy
		if p.healthy() != nil {
			wait = pollSick
		}
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
		case <-timer.C:
			p.check(ctx)
		}
		timer.Stop()
	}
	p.close()
}

// healthy is nil if all was well when the plugin was last asked.
func (p *plugin) healthy() error {
	if err := *p.last.Load(); err != nil {
		return fmt.Errorf("KMS provider %s: %w", p.name, err)
	}
	return nil
}

// check asks for the status, and makes a new seed if the plugin's key is
// another one. While that fails the old seed writes on until it expires.
func (p *plugin) check(ctx context.Context) {
	p.mu.Lock()
	defer p.mu.Unlock()
	err, before := p.ask(ctx), *p.last.Load()
	p.last.Store(&err)
	switch {
	case err == nil && before != nil:
		p.log.Info("the plugin is healthy")
	case err != nil && ctx.Err() == nil && (before == nil || before.Error() != err.Error()):
		p.log.Warn("the plugin is not healthy", "err", err)
	}
}

func (p *plugin) ask(ctx context.Context) error {
	asked := p.now()
	call, cancel := context.WithTimeout(ctx, p.timeout)
	defer cancel()
	s, err := p.client.Status(call, &kms.StatusRequest{})
	if err != nil {
		return fmt.Errorf("ask for its status: %w", err)
	}
	if s.Healthz != "ok" {
		return fmt.Errorf("got unexpected healthz status: %s", s.Healthz)
	}
	if s.Version != "v2" && s.Version != "v2beta1" {
		return fmt.Errorf("expected KMSv2 API version v2, got %s", s.Version)
	}
	if p.version != "" && p.version != s.Version {
		return fmt.Errorf("KMSv2 API version should not change after the initial status response version %s, got %s", p.version, s.Version)
	}
	p.version = s.Version
	if err := validateKeyID(s.KeyId); err != nil {
		p.metrics.invalidKeyID(p.name, s.KeyId)
		return fmt.Errorf("its status: %w", err)
	}
	p.metrics.statusKeyID(p.name, s.KeyId)
	return p.keep(ctx, s.KeyId, asked.Add(writeLifetime))
}

// keep lets the present seed write until expires, or makes one with the key
// that the status names.
func (p *plugin) keep(ctx context.Context, keyID string, expires time.Time) error {
	if w := p.writer.Load(); w != nil && w.keyID == keyID {
		longer := *w
		longer.expires = expires
		p.writer.Store(&longer)
		return nil
	}
	w, err := p.newWriter(ctx)
	if err != nil {
		return fmt.Errorf("make a seed: %w", err)
	}
	if w.keyID != keyID {
		return errors.New("make a seed: it was encrypted by another key than the status names")
	}
	w.expires = expires
	p.seeds.add(cacheKey(&envelope{source: w.source, keyID: w.keyID, annotations: w.annotations, sourceType: sourceSeed}), w.cipher)
	p.metrics.seedsKept(p.name, p.seeds.len())
	p.writer.Store(w)
	p.log.Info("a new seed writes", "keyID", hash(keyID))
	return nil
}

func (p *plugin) newWriter(ctx context.Context) (*writer, error) {
	began := time.Now()
	seed := make([]byte, seedSize)
	_, err := rand.Read(seed)
	p.metrics.keyMade(began, err)
	if err != nil {
		return nil, err
	}
	cipher, err := newSeeded(seed)
	if err != nil {
		return nil, err
	}
	call, cancel := context.WithTimeout(ctx, p.timeout)
	defer cancel()
	resp, err := p.client.Encrypt(call, &kms.EncryptRequest{Plaintext: seed, Uid: uuid.NewString()})
	if err != nil {
		return nil, err
	}
	if err := errors.Join(validateKeyID(resp.KeyId), validateSource(resp.Ciphertext), validateAnnotations(resp.Annotations)); err != nil {
		return nil, err
	}
	return &writer{cipher: cipher, keyID: resp.KeyId, source: resp.Ciphertext, annotations: resp.Annotations}, nil
}

// seal encrypts with the present seed.
func (p *plugin) seal(_ context.Context, plain []byte, path string) ([]byte, error) {
	w := p.writer.Load()
	if w == nil {
		return nil, fmt.Errorf("KMS provider %s has not been healthy yet", p.name)
	}
	if now := p.now(); now.After(w.expires) {
		return nil, fmt.Errorf("KMS provider %s: its seed expired at %s (current time is %s)", p.name, w.expires.Format(time.RFC3339), now.Format(time.RFC3339))
	}
	data, err := w.cipher.seal(plain, path)
	if err != nil {
		return nil, err
	}
	p.metrics.keyUsed("to_storage", p.name, w.keyID)
	e := envelope{data: data, keyID: w.keyID, source: w.source, annotations: w.annotations, sourceType: sourceSeed}
	return e.encode(), nil
}

// open decrypts with the seed that the value names, which the plugin decrypts
// if it is not known yet. A value of another key than the present one is stale.
func (p *plugin) open(ctx context.Context, sealed []byte, path string) ([]byte, bool, error) {
	e, err := parseEnvelope(sealed)
	if err != nil {
		return nil, false, err
	}
	id := cacheKey(e)
	cipher := p.seeds.get(id)
	if cipher == nil {
		if cipher, err = p.unlock(ctx, e); err != nil {
			return nil, false, fmt.Errorf("failed to decrypt DEK, error: %w", err)
		}
		p.seeds.add(id, cipher)
		p.metrics.seedsKept(p.name, p.seeds.len())
	}
	p.metrics.keyUsed("from_storage", p.name, e.keyID)
	plain, err := cipher.open(e.data, path)
	if err != nil {
		return nil, false, err
	}
	w := p.writer.Load()
	return plain, w != nil && (w.keyID != e.keyID || e.sourceType != sourceSeed), nil
}

// unlock lets the plugin decrypt a seed or key.
func (p *plugin) unlock(ctx context.Context, e *envelope) (localCipher, error) {
	p.metrics.missed()
	call, cancel := context.WithTimeout(ctx, p.timeout)
	defer cancel()
	resp, err := p.client.Decrypt(call, &kms.DecryptRequest{
		Ciphertext: e.source, Uid: uuid.NewString(), KeyId: e.keyID, Annotations: e.annotations,
	})
	if err != nil {
		return nil, err
	}
	if e.sourceType == sourceKey {
		return newGCM(resp.Plaintext)
	}
	return newSeeded(resp.Plaintext)
}

// seedID stands for what the plugin would be asked to decrypt.
type seedID [sha256.Size]byte

func cacheKey(e *envelope) seedID {
	head := envelope{keyID: e.keyID, source: e.source, annotations: e.annotations, sourceType: e.sourceType}
	return sha256.Sum256(head.encode())
}

// seedCache keeps the seeds used lately: at least the last seedsKept of them.
// There are few, one a start of a server and key of the plugin.
type seedCache struct {
	mu         sync.Mutex
	young, old map[seedID]localCipher
}

const seedsKept = 1000

func (c *seedCache) get(id seedID) localCipher {
	c.mu.Lock()
	defer c.mu.Unlock()
	if found := c.young[id]; found != nil {
		return found
	}
	found := c.old[id]
	if found != nil {
		c.addLocked(id, found)
	}
	return found
}

func (c *seedCache) add(id seedID, cipher localCipher) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.addLocked(id, cipher)
}

func (c *seedCache) addLocked(id seedID, cipher localCipher) {
	if c.young == nil || len(c.young) == seedsKept {
		c.young, c.old = map[seedID]localCipher{}, c.young
	}
	c.young[id] = cipher
}

func (c *seedCache) len() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.young) + len(c.old)
}

// plugin measures the calls to a plugin.
func (m *metrics) plugin(name string) grpc.UnaryClientInterceptor {
	return func(ctx context.Context, method string, req, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
		began := time.Now()
		err := invoke(ctx, method, req, reply, conn, opts...)
		m.calls.WithLabelValues(name, method, status.Code(err).String()).Observe(time.Since(began).Seconds())
		return err
	}
}
