package encryption

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	kms "k8s.io/kms/apis/v2"

	"podium/pkg/storage/encryption/kmstest"
)

// direct is a client that calls the plugin without a connection.
type direct struct{ *kmstest.Plugin }

func (d direct) Status(ctx context.Context, r *kms.StatusRequest, _ ...grpc.CallOption) (*kms.StatusResponse, error) {
	return d.Plugin.Status(ctx, r)
}

func (d direct) Encrypt(ctx context.Context, r *kms.EncryptRequest, _ ...grpc.CallOption) (*kms.EncryptResponse, error) {
	return d.Plugin.Encrypt(ctx, r)
}

func (d direct) Decrypt(ctx context.Context, r *kms.DecryptRequest, _ ...grpc.CallOption) (*kms.DecryptResponse, error) {
	return d.Plugin.Decrypt(ctx, r)
}

func directly(to *kmstest.Plugin) *plugin {
	return pluginOf(&KMSConfiguration{Name: "test"}, &Config{Now: time.Now, Log: slog.New(slog.DiscardHandler)},
		newMetrics(nil, ""), direct{to}, func() error { return nil })
}

const where = "/registry/secrets/ns/a"

// inBubble runs a test in virtual time with a plugin whose status is polled as in
// production.
func inBubble(t *testing.T, test func(t *testing.T, remote *kmstest.Plugin, p *plugin)) {
	synctest.Test(t, func(t *testing.T) {
		remote := kmstest.New("1")
		p := directly(remote)
		p.check(t.Context())
		ctx, cancel := context.WithCancel(t.Context())
		go p.run(ctx)
		test(t, remote, p)
		cancel()
		synctest.Wait()
	})
}

func (p *plugin) mustSeal(t *testing.T) []byte {
	t.Helper()
	sealed, err := p.seal(t.Context(), []byte("x"), where)
	if err != nil {
		t.Fatal(err)
	}
	return sealed
}

func TestPluginIsAskedOncePerSeed(t *testing.T) {
	inBubble(t, func(t *testing.T, remote *kmstest.Plugin, p *plugin) {
		for range 100 {
			if _, stale, err := p.open(t.Context(), p.mustSeal(t), where); err != nil || stale {
				t.Fatalf("stale %v, %v", stale, err)
			}
		}
		time.Sleep(time.Hour)
		if e, d := remote.Calls("Encrypt"), remote.Calls("Decrypt"); e != 1 || d != 0 {
			t.Errorf("%d seeds encrypted and %d decrypted, want 1 and 0", e, d)
		}
		if n := remote.Calls("Status"); n < 100 || n > 200 {
			t.Errorf("asked for its status %d times in an hour, want every 20 s", n)
		}
		other := directly(remote) // another server, or this one after a restart
		sealed := p.mustSeal(t)
		for range 100 {
			if _, _, err := other.open(t.Context(), sealed, where); err != nil {
				t.Fatal(err)
			}
		}
		if d := remote.Calls("Decrypt"); d != 1 {
			t.Errorf("%d seeds decrypted for 100 values of one, want 1", d)
		}
	})
}

func TestPluginKeyChanges(t *testing.T) {
	inBubble(t, func(t *testing.T, remote *kmstest.Plugin, p *plugin) {
		before := p.mustSeal(t)
		remote.Rotate("2")
		time.Sleep(pollHealthy + time.Second)
		if _, stale, err := p.open(t.Context(), before, where); err != nil || !stale {
			t.Errorf("what the old key wrote: stale %v, %v; want it to be stale", stale, err)
		}
		if _, stale, err := p.open(t.Context(), p.mustSeal(t), where); err != nil || stale {
			t.Errorf("what the new key wrote: stale %v, %v", stale, err)
		}
	})
}

func TestPluginFails(t *testing.T) {
	for name, fail := range map[string]func(*kmstest.Plugin){
		"it is sick":         func(r *kmstest.Plugin) { r.Sicken("the HSM is on fire") },
		"its calls fail":     func(r *kmstest.Plugin) { r.Break(errors.New("out of order")) },
		"it has no key":      func(r *kmstest.Plugin) { r.Rotate("") },
		"its key has a book": func(r *kmstest.Plugin) { r.Rotate(string(make([]byte, maxKeyID+1))) },
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, remote *kmstest.Plugin, p *plugin) {
				before := p.mustSeal(t)
				fail(remote)
				time.Sleep(time.Minute)
				if p.healthy() == nil {
					t.Error("it counts as healthy")
				}
				if _, err := p.seal(t.Context(), []byte("x"), where); err != nil {
					t.Errorf("after a minute: %v; its last word should hold for three", err)
				}
				time.Sleep(writeLifetime)
				if _, err := p.seal(t.Context(), []byte("x"), where); err == nil {
					t.Error("the seed writes on for ever")
				}
				if _, _, err := p.open(t.Context(), before, where); err != nil {
					t.Errorf("what is known cannot be read: %v", err)
				}
				remote.Sicken("")
				remote.Break(nil)
				remote.Rotate("1b")
				time.Sleep(pollSick + time.Second)
				if err := p.healthy(); err != nil {
					t.Errorf("well again, but %v", err)
				}
				p.mustSeal(t)
			})
		})
	}
}

func TestPluginThatHangsIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := directly(kmstest.New("1"))
		p.client, p.timeout = hanging{}, 2*time.Second
		began := time.Now()
		p.check(t.Context())
		if took := time.Since(began); p.healthy() == nil || took != p.timeout {
			t.Errorf("after %v: %v; want an error after %v", took, p.healthy(), p.timeout)
		}
		sealed := directly(kmstest.New("1"))
		sealed.check(t.Context())
		began = time.Now()
		if _, _, err := p.open(t.Context(), sealed.mustSeal(t), where); err == nil || time.Since(began) != p.timeout {
			t.Errorf("a read ended with %v after %v", err, time.Since(began))
		}
	})
}

// hanging never answers.
type hanging struct{ kms.KeyManagementServiceClient }

func (hanging) Status(ctx context.Context, _ *kms.StatusRequest, _ ...grpc.CallOption) (*kms.StatusResponse, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

func (hanging) Decrypt(ctx context.Context, _ *kms.DecryptRequest, _ ...grpc.CallOption) (*kms.DecryptResponse, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}
