package images

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"podium/pkg/kubelet/cri/crifake"
)

// The time that a pod waits counts once for pulls beside each other, and includes back-offs.
func TestWaited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		failed := false
		runtime := crifake.New(crifake.Config{
			Pull: func(image string, _ *runtimeapi.AuthConfig) error {
				if image == "flaky:1" && !failed {
					failed = true
					return errors.New("not yet")
				}
				return nil
			},
			Latency: func(operation string) time.Duration {
				return map[string]time.Duration{"PullImage": 5 * time.Second}[operation]
			},
		})
		p := New(Config{
			Images: runtime.ImageService(), Events: &reported{}, Log: slog.New(slog.DiscardHandler), Parallel: 2,
			Records: NewRecords(t.TempDir(), slog.New(slog.DiscardHandler)), Wake: func(types.UID) {},
		})
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "u"}}
		ensure := func(images ...string) {
			for _, image := range images {
				_, _ = p.Ensure(context.Background(), pod, &corev1.Container{Image: image}, "start")
			}
		}
		pass := func(d, want time.Duration) {
			t.Helper()
			time.Sleep(d)
			synctest.Wait()
			if got := p.Waited("u"); got != want {
				t.Errorf("waited %v, want %v", got, want)
			}
		}
		pass(time.Second, 0)
		ensure("one:1", "two:1")
		pass(3*time.Second, 3*time.Second)
		pass(time.Minute, 5*time.Second)
		ensure("one:1")
		pass(time.Minute, 5*time.Second)
		ensure("flaky:1")
		pass(20*time.Second, 25*time.Second)
		ensure("flaky:1")
		pass(time.Minute, 30*time.Second)
		p.Forget("u")
		pass(0, 0)
	})
}
