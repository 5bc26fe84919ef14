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
	grpcbackoff "google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	kms "k8s.io/kms/apis/v2"

	"podium/pkg/backoff"
)

const (
	pollHealthy   = 20 * time.Second // interval of status requests to a healthy plugin
	pollSick      = 3 * time.Second  // interval of status requests to an unhealthy plugin
	writeLifetime = 3 * time.Minute  // how long a seed may encrypt after the last healthy status
	dialMost      = 3 * time.Second  // maximum back-off between attempts to connect
)

// plugin is a KMS v2 provider. The plugin process encrypts and decrypts only seeds;
// this process encrypts the values, each with a key derived from the seed. A new
// seed is created when the server starts and when the key of the plugin changes.
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

	mu      sync.Mutex            // held during a status request
	version string                // API version of the first status
	last    atomic.Pointer[error] // result of the last status request
}

// writer is the seed that encrypts new values.
type writer struct {
	cipher      localCipher
	keyID       string
	source      []byte // the seed, encrypted by the plugin
	annotations map[string][]byte
	expires     time.Time
}

var errNoStatus = errors.New("its status has not been requested yet")

// newPlugin creates a client of the plugin, which connects in the background.
func newPlugin(c *KMSConfiguration, k *Config, m *metrics) (*plugin, error) {
	socket, err := c.socket()
	if err != nil {
		return nil, err
	}
	if socket[0] == '@' {
		socket = "\x00" + socket[1:]
	}
	pace := grpcbackoff.DefaultConfig
	pace.MaxDelay = dialMost
	conn, err := grpc.NewClient("passthrough:///"+c.Name,
		grpc.WithAuthority("localhost"),
		grpc.WithTransportCredentials(insecure.NewCredentials()), // a Unix socket, protected by file permissions
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
	p.last.Store(&errNoStatus)
	return p
}

// run polls the status until ctx ends, then closes the connection.
func (p *plugin) run(ctx context.Context) {
	for ctx.Err() == nil {
		wait := pollHealthy
		if p.healthy() != nil {
			wait = pollSick
		}
		if backoff.Sleep(ctx, wait) == nil {
			p.check(ctx)
		}
	}
	p.close()
}

// healthy returns the error of the last status request.
func (p *plugin) healthy() error {
	if err := *p.last.Load(); err != nil {
		return fmt.Errorf("KMS provider %s: %w", p.name, err)
	}
	return nil
}

// check requests the status, and creates a new seed if the key of the plugin has
// changed. If that fails, the old seed remains in use until it expires.
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

// keep extends the lifetime of the present seed to expires or, if keyID is another
// key, creates a new seed.
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
	p.log.Info("data encryption key seed rotated", "keyID", hash(keyID))
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

// seal encrypts with the present seed. It fails if the seed has expired.
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

// open decrypts with the seed in the value, which the plugin decrypts unless it is
// cached. A value is stale if its seed was encrypted by another key than the
// present one.
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

// unlock has the plugin decrypt a seed or key.
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

// seedID identifies an encrypted seed.
type seedID [sha256.Size]byte

func cacheKey(e *envelope) seedID {
	head := envelope{keyID: e.keyID, source: e.source, annotations: e.annotations, sourceType: e.sourceType}
	return sha256.Sum256(head.encode())
}

// seedCache caches decrypted seeds, at least the seedsKept most recently used.
// There are few seeds: one for each start of a server and each key of the plugin.
// It is safe for concurrent use.
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

// plugin returns an interceptor that measures the calls to a plugin.
func (m *metrics) plugin(name string) grpc.UnaryClientInterceptor {
	return func(ctx context.Context, method string, req, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
		began := time.Now()
		err := invoke(ctx, method, req, reply, conn, opts...)
		m.calls.WithLabelValues(name, method, status.Code(err).String()).Observe(time.Since(began).Seconds())
		return err
	}
}
