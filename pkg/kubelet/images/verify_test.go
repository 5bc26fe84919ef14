package images

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"podium/pkg/kubelet/cri/crifake"
)

const private = "registry.example.org/team/app:1"

// node is a puller on a runtime whose registry requires a password for private
// images, and the secrets of the API by namespace/name.
type node struct {
	t       *testing.T
	runtime *crifake.Runtime
	dir     string
	verify  Verification
	secrets map[string]*corev1.Secret
	reads   int // of secrets
	outage  bool
	fail    error // of the next pulls

	puller *Puller
	woken  chan types.UID
	events *reported
}

// onNode runs a test in virtual time on a node whose registry's password is pw.
func onNode(t *testing.T, verify Verification, test func(n *node)) {
	synctest.Test(t, func(t *testing.T) {
		n := &node{t: t, dir: filepath.Join(t.TempDir(), "image_manager"), verify: verify, secrets: map[string]*corev1.Secret{}}
		n.runtime = crifake.New(crifake.Config{Images: []string{"preloaded:1"}, Pull: func(image string, auth *runtimeapi.AuthConfig) error {
			if n.fail != nil {
				return n.fail
			}
			if strings.HasPrefix(image, "registry.example.org/") && auth.GetPassword() != "pw" {
				return errors.New("401 Unauthorized")
			}
			return nil
		}})
		n.start()
		test(n)
		n.puller.Wait()
	})
}

// start simulates a start of the kubelet without anything in memory.
func (n *node) start() {
	n.woken, n.events = make(chan types.UID, 1), &reported{}
	n.puller = New(Config{
		Images: n.runtime.ImageService(), Events: n.events, Log: slog.New(slog.DiscardHandler), Wake: func(uid types.UID) { n.woken <- uid },
		Records: NewRecords(n.dir, slog.New(slog.DiscardHandler)), Verify: n.verify,
		Secret: func(_ context.Context, namespace, name string) (*corev1.Secret, error) {
			n.reads++
			if n.outage {
				return nil, errors.New("connection refused")
			}
			if s := n.secrets[namespace+"/"+name]; s != nil {
				return s, nil
			}
			return nil, apierrors.NewNotFound(schema.GroupResource{Resource: "secrets"}, name)
		},
	})
	n.puller.Recover(n.t.Context())
}

func (n *node) secret(namespace, name, uid, password string) {
	s := dockerSecret(`{"auths":{"registry.example.org":{"username":"u","password":"` + password + `"}}}`)
	s.Namespace, s.Name, s.UID = namespace, name, types.UID(uid)
	n.secrets[namespace+"/"+name] = s
}

// outcome describes how a container got its image, or why it did not.
func (n *node) outcome(namespace, uid, image string, policy corev1.PullPolicy, secrets ...string) string {
	n.t.Helper()
	c := &corev1.Container{Name: "c", Image: image, ImagePullPolicy: policy}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: uid, UID: types.UID(uid)}, Spec: corev1.PodSpec{Containers: []corev1.Container{*c}}}
	for _, name := range secrets {
		pod.Spec.ImagePullSecrets = append(pod.Spec.ImagePullSecrets, corev1.LocalObjectReference{Name: name})
	}
	before := len(n.runtime.Calls())
	how := "cached"
	for {
		_, err := n.puller.Ensure(n.t.Context(), pod, c, "1")
		var wait *Waiting
		switch {
		case err == nil:
			n.puller.Used(pod.UID, c, "1")
			return how
		case !errors.As(err, &wait):
			n.t.Fatal(err)
		case wait.Reason != "":
			return wait.Reason
		}
		<-n.woken
		how = fmt.Sprintf("pulled %d", len(slices.DeleteFunc(n.runtime.Calls()[before:], func(c string) bool { return !strings.HasPrefix(c, "PullImage") })))
	}
}

func (n *node) expect(what, want, got string) {
	n.t.Helper()
	if got != want {
		n.t.Errorf("%s: %s, want %s", what, got, want)
	}
}

// A pod cannot use an image that another tenant pulled, whatever the pull policy.
func TestCachedImagesNeedCredentials(t *testing.T) {
	onNode(t, Verification{}, func(n *node) {
		n.secret("a", "s", "sa", "pw")
		n.secret("b", "copy", "sb", "pw")
		n.secret("c", "wrong", "sc", "x")
		n.expect("its own first pod", "pulled 1", n.outcome("a", "p1", private, corev1.PullIfNotPresent, "s"))
		n.expect("its own next pod", "cached", n.outcome("a", "p2", private, corev1.PullIfNotPresent, "s"))
		n.expect("its own pod that never pulls", "cached", n.outcome("a", "p3", private, corev1.PullNever, "s"))
		n.expect("a pod without a secret", ReasonErrImagePull, n.outcome("b", "p4", private, corev1.PullIfNotPresent))
		n.expect("a pod without a secret that never pulls", ReasonErrImageNeverPull, n.outcome("b", "p5", private, corev1.PullNever))
		n.expect("a secret that is not there", ReasonErrImagePull, n.outcome("b", "p6", private, corev1.PullIfNotPresent, "s"))
		n.expect("the wrong password", ReasonErrImagePull, n.outcome("c", "p7", private, corev1.PullIfNotPresent, "wrong"))
		n.expect("the image's id", ReasonErrImageNeverPull, n.outcome("b", "p8", n.id(private), corev1.PullNever))
		n.expect("the same credentials in another secret", "cached", n.outcome("b", "p9", private, corev1.PullIfNotPresent, "copy"))
		n.expect("Always pulls", "pulled 1", n.outcome("b", "p10", private, corev1.PullAlways, "copy"))
		n.expect("each pod may use preloaded images", "cached", n.outcome("b", "p11", "preloaded:1", corev1.PullNever))
		n.expect("public images are pulled once", "pulled 1", n.outcome("b", "p12", "public:1", corev1.PullIfNotPresent))
		n.expect("and then usable by each pod", "cached", n.outcome("c", "p13", "public:1", corev1.PullNever))
	})
}

func (n *node) id(image string) string {
	res, err := n.runtime.ImageService().ImageStatus(n.t.Context(), &runtimeapi.ImageStatusRequest{Image: &runtimeapi.ImageSpec{Image: image}})
	if err != nil {
		n.t.Fatal(err)
	}
	return res.Image.GetId()
}

// A secret with new credentials still counts as the one that pulled the image; a
// recreated secret with the same name does not.
func TestRotatedSecrets(t *testing.T) {
	onNode(t, Verification{}, func(n *node) {
		n.secret("a", "s", "sa", "pw")
		n.expect("first", "pulled 1", n.outcome("a", "p1", private, corev1.PullIfNotPresent, "s"))
		n.secret("a", "s", "sa", "new")
		n.expect("rotated", "cached", n.outcome("a", "p2", private, corev1.PullIfNotPresent, "s"))
		n.secret("a", "s", "sa2", "wrong")
		n.expect("made anew", ReasonErrImagePull, n.outcome("a", "p3", private, corev1.PullIfNotPresent, "s"))
	})
}

func TestVerificationPolicies(t *testing.T) {
	for policy, want := range map[VerificationPolicy][3]string{ // a private image, one preloaded, one preloaded and listed
		NeverVerify:                  {"cached", "cached", "cached"},
		NeverVerifyPreloadedImages:   {ReasonErrImageNeverPull, "cached", "cached"},
		NeverVerifyAllowlistedImages: {ReasonErrImageNeverPull, ReasonErrImageNeverPull, "cached"},
		AlwaysVerify:                 {ReasonErrImageNeverPull, ReasonErrImageNeverPull, ReasonErrImageNeverPull},
	} {
		t.Run(string(policy), func(t *testing.T) {
			v := Verification{Policy: policy}
			if policy == NeverVerifyAllowlistedImages {
				v.Allowlist = []string{"docker.io/listed/*"}
			}
			if err := v.Validate(); err != nil {
				t.Fatal(err)
			}
			onNode(t, v, func(n *node) {
				n.runtime = crifake.New(crifake.Config{Images: []string{"preloaded:1", "listed/app:1"}})
				n.start()
				n.secret("a", "s", "sa", "pw")
				n.expect("first", "pulled 1", n.outcome("a", "p1", private, corev1.PullIfNotPresent, "s"))
				got := [3]string{}
				for i, image := range []string{private, "preloaded:1", "listed/app:1"} {
					got[i] = n.outcome("b", fmt.Sprint("p2", i), image, corev1.PullNever)
				}
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("(-want +got):\n%s", diff)
				}
			})
		})
	}
}

func TestVerificationIsValidated(t *testing.T) {
	for _, bad := range []Verification{
		{Policy: "Sometimes"}, {Allowlist: []string{"docker.io/library/a"}}, {Policy: AlwaysVerify, Allowlist: []string{"docker.io/library/a"}},
		{Policy: NeverVerifyAllowlistedImages, Allowlist: []string{"a"}}, {Policy: NeverVerifyAllowlistedImages, Allowlist: []string{"r.org/a:1"}},
		{Policy: NeverVerifyAllowlistedImages, Allowlist: []string{"/*"}}, {Policy: NeverVerifyAllowlistedImages, Allowlist: []string{"*"}},
		{Policy: NeverVerifyAllowlistedImages, Allowlist: []string{"r.org/a*"}}, {Policy: NeverVerifyAllowlistedImages, Allowlist: []string{" r.org/a"}},
		{Policy: NeverVerifyAllowlistedImages, Allowlist: []string{""}},
	} {
		if bad.Validate() == nil {
			t.Errorf("%+v is taken", bad)
		}
	}
	good := Verification{Policy: NeverVerifyAllowlistedImages, Allowlist: []string{"r.org/a", "r.org/*", "docker.io/library/a"}}
	if err := good.Validate(); err != nil {
		t.Error(err)
	}
	if good.required("r.org/b/c:1", true) || good.required("a@sha256:x", true) || !good.required("r.organic/a", true) {
		t.Error("the patterns do not match as they should")
	}
}

// Records survive restarts, and an unfinished pull counts as the kubelet's own.
func TestRecordsSurviveRestarts(t *testing.T) {
	onNode(t, Verification{}, func(n *node) {
		n.secret("a", "s", "sa", "pw")
		n.expect("first", "pulled 1", n.outcome("a", "p1", private, corev1.PullIfNotPresent, "s"))
		n.start()
		n.expect("its own after a restart", "cached", n.outcome("a", "p2", private, corev1.PullIfNotPresent, "s"))
		n.expect("another's after a restart", ReasonErrImageNeverPull, n.outcome("b", "p3", private, corev1.PullNever))
	})
	onNode(t, Verification{}, func(n *node) {
		n.secret("a", "s", "sa", "pw")
		if err := NewRecords(n.dir, slog.New(slog.DiscardHandler)).begin(private); err != nil { // and the kubelet is killed
			t.Fatal(err)
		}
		_, err := n.runtime.ImageService().PullImage(t.Context(), &runtimeapi.PullImageRequest{
			Image: &runtimeapi.ImageSpec{Image: private}, Auth: &runtimeapi.AuthConfig{Password: "pw"}})
		if err != nil {
			t.Fatal(err)
		}
		n.expect("the pull is not recorded yet", ReasonErrImageNeverPull, n.outcome("b", "p1", private, corev1.PullNever))
		n.start()
		if left, _ := filepath.Glob(n.dir + "/pulling/*"); len(left) > 0 {
			t.Errorf("%v: the intent's outcome is known", left)
		}
		n.expect("no credentials are recorded", ReasonErrImageNeverPull, n.outcome("b", "p2", private, corev1.PullNever))
		n.expect("a pod with the password pulls", "pulled 1", n.outcome("a", "p3", private, corev1.PullIfNotPresent, "s"))
		n.expect("once", "cached", n.outcome("a", "p4", private, corev1.PullIfNotPresent, "s"))
	})
}

// After a pull that definitely failed, a preloaded image remains preloaded; if the
// runtime may still be pulling, it does not.
func TestFailedPulls(t *testing.T) {
	for name, tc := range map[string]struct {
		err  error
		want string
	}{
		"Refused":  {errors.New("connection refused"), "cached"},
		"TimedOut": {status.Error(codes.DeadlineExceeded, "context deadline exceeded"), ReasonErrImageNeverPull},
	} {
		t.Run(name, func(t *testing.T) {
			onNode(t, Verification{}, func(n *node) {
				n.fail = tc.err
				n.expect("the pull", ReasonErrImagePull, n.outcome("a", "p1", "preloaded:1", corev1.PullAlways))
				n.expect("then", tc.want, n.outcome("a", "p2", "preloaded:1", corev1.PullNever))
			})
		})
	}
}

// A damaged record has no credentials, but its image does not count as preloaded.
func TestDamagedRecords(t *testing.T) {
	onNode(t, Verification{}, func(n *node) {
		n.secret("a", "s", "sa", "pw")
		n.outcome("a", "p1", private, corev1.PullIfNotPresent, "s")
		files, err := filepath.Glob(n.dir + "/pulled/sha256-*")
		if err != nil || len(files) != 1 {
			t.Fatal(files, err)
		}
		for _, path := range append(files, n.dir, n.dir+"/pulled") {
			if st, err := os.Stat(path); err != nil || st.Mode()&0o077 != 0 {
				t.Errorf("%s: %v, %v; only the kubelet reads it", path, st.Mode(), err)
			}
		}
		text, err := os.ReadFile(files[0])
		if err != nil || strings.Contains(string(text), `"pw"`) || !strings.Contains(string(text), `"kind":"ImagePulledRecord","apiVersion":"kubelet.config.k8s.io/v1beta1"`) {
			t.Errorf("%s, %v", text, err)
		}
		for _, damaged := range []string{"", "{", `{"imageRef":"other"}`} {
			if err := os.WriteFile(files[0], []byte(damaged), 0o600); err != nil {
				t.Fatal(err)
			}
			n.start()
			n.expect("with "+damaged, ReasonErrImageNeverPull, n.outcome("a", "p2", private, corev1.PullNever, "s"))
		}
		n.expect("it is made anew", "pulled 1", n.outcome("a", "p3", private, corev1.PullIfNotPresent, "s"))
		n.expect("and good", "cached", n.outcome("a", "p4", private, corev1.PullIfNotPresent, "s"))
	})
}

// A pod that has had its image restarts its containers without the API server.
func TestShownCredentialsHoldForThePod(t *testing.T) {
	onNode(t, Verification{}, func(n *node) {
		n.secret("a", "s", "sa", "pw")
		n.outcome("a", "p1", private, corev1.PullIfNotPresent, "s")
		n.outcome("a", "p2", private, corev1.PullIfNotPresent, "s")
		n.outage = true
		n.reads = 0
		for _, pod := range []string{"p1", "p2"} {
			n.expect("again "+pod, "cached", n.outcome("a", pod, private, corev1.PullIfNotPresent, "s"))
		}
		n.expect("preloaded", "cached", n.outcome("a", "p3", "preloaded:1", corev1.PullIfNotPresent, "s"))
		if n.reads > 0 {
			t.Errorf("%d reads of secrets that are not needed", n.reads)
		}
	})
}

func TestPruneRemovesRecordsOfImagesThatAreGone(t *testing.T) {
	onNode(t, Verification{}, func(n *node) {
		n.outcome("a", "p1", "gone:1", corev1.PullIfNotPresent)
		n.outcome("a", "p2", "kept:1", corev1.PullIfNotPresent)
		time.Sleep(time.Hour)
		began := time.Now()
		n.outcome("a", "p3", "new:1", corev1.PullIfNotPresent)
		n.puller.cfg.Records.Prune([]string{n.id("kept:1")}, began)
		for image, want := range map[string]bool{"gone:1": false, "kept:1": true, "new:1": true} {
			if got, _ := n.puller.cfg.Records.lookup(image, n.id(image)); got != want {
				t.Errorf("%s is recorded: %v, want %v", image, got, want)
			}
		}
	})
}

func FuzzRecords(f *testing.F) {
	f.Add(`{"imageRef":"id","credentialMapping":{"docker.io/library/a":{"nodePodsAccessible":true}}}`)
	f.Add(`{"image":"a"}`)
	f.Fuzz(func(t *testing.T, text string) {
		r := NewRecords(t.TempDir(), slog.New(slog.DiscardHandler))
		for _, kind := range []string{"pulled", "pulling"} {
			if err := os.MkdirAll(filepath.Join(r.dir, kind), 0o700); err != nil {
				t.Fatal(err)
			}
		}
		for _, file := range []string{r.file("pulled", "id"), r.file("pulling", "docker.io/library/a:latest")} {
			if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		r.recover(t.Context(), func(context.Context, string) (string, error) { return "id", nil })
		if pulled, _ := r.lookup("a", "id"); !pulled {
			t.Errorf("%q: the image counts as preloaded", text)
		}
		r.Prune(nil, time.Time{})
	})
}
