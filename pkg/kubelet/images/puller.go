package images

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"podium/pkg/backoff"
	"podium/pkg/kubelet/cri"
	"podium/pkg/kubelet/podspec"
	"podium/pkg/scheme"
)

// The waiting reasons of containers whose image is not available; clients match them.
const (
	ReasonErrImagePull      = "ErrImagePull"
	ReasonImagePullBackOff  = "ImagePullBackOff"
	ReasonErrImageNeverPull = "ErrImageNeverPull"
	ReasonImageInspectError = "ImageInspectError"
	ReasonInvalidImageName  = "InvalidImageName"
)

// The back-off after a failed pull doubles from firstDelay to maxDelay.
const (
	firstDelay = 10 * time.Second
	maxDelay   = 5 * time.Minute

	showFailure = 2 * time.Second // how long the status shows the failure before the back-off
)

// Recorder records events about images.
type Recorder interface {
	EventOn(obj scheme.Object, fieldPath, eventType, reason, message string)
}

// Config configures a Puller.
type Config struct {
	Images cri.Images
	// Secret reads a pull secret.
	Secret func(ctx context.Context, namespace, name string) (*corev1.Secret, error)
	// Records are the records of earlier pulls. Verify selects the images on
	// the node for which a pod needs credentials that Records has.
	Records *Records
	Verify  Verification
	// Provider knows credentials besides those of pull secrets; nil: none.
	Provider Provider
	// Wake is called when a pull for the pod has ended, on any goroutine.
	Wake     func(types.UID)
	Events   Recorder
	Log      *slog.Logger
	Parallel int // pulls at one time; 0: 1
}

// Puller provides images to pods. It pulls in the background. It is safe for
// concurrent use.
type Puller struct {
	cfg   Config
	slots chan struct{}

	mu    sync.Mutex
	pods  map[types.UID]map[string]*state // by image
	waits map[types.UID]*wait             // of pods for which a pull has begun
	pulls sync.WaitGroup
}

// state is the state of an image for one pod.
type state struct {
	pulling  bool
	awaited  *wait             // the pod's, from the start of a pull until one succeeds; else nil
	mayUse   string            // the image id for which the pod has shown credentials
	done     map[string]string // finished pulls: image id by the start argument of Ensure
	err      error             // of the last pull; nil if it succeeded
	retry    backoff.Backoff
	until    time.Time
	failed   time.Time
	reported bool // the back-off event has been sent
}

// Waiting is the error of an image that is not available yet. Reason "" means that
// a pull is under way.
type Waiting struct {
	Reason, Message string
	Until           time.Time // when to call Ensure again; zero: after Wake
}

func (w *Waiting) Error() string { return strings.TrimPrefix(w.Reason+": "+w.Message, ": ") }

// New returns a Puller.
func New(cfg Config) *Puller {
	return &Puller{cfg: cfg, slots: make(chan struct{}, max(cfg.Parallel, 1)), pods: map[types.UID]map[string]*state{}, waits: map[types.UID]*wait{}}
}

// Recover resolves the pulls of which an earlier kubelet did not learn the
// outcome. Call it once before Ensure, when the runtime answers.
func (p *Puller) Recover(ctx context.Context) { p.cfg.Records.recover(ctx, p.present) }

// Wait blocks until no pull is under way. The contexts of all pulls must have
// ended.
func (p *Puller) Wait() { p.pulls.Wait() }

// Forget drops the state of a pod that no longer exists.
func (p *Puller) Forget(uid types.UID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.pods, uid)
	delete(p.waits, uid)
}

// Ensure returns the id of the container's image, or a *Waiting as the error. It
// does not wait for pulls. A pull that it starts ends with ctx. start identifies
// one start of the container: with the policy Always, each start pulls once.
func (p *Puller) Ensure(ctx context.Context, pod *corev1.Pod, c *corev1.Container, start string) (string, error) {
	if !validName(c.Image) {
		message := fmt.Sprintf("Failed to apply default image tag %q: couldn't parse image name %q: invalid reference format", c.Image, c.Image)
		p.event(pod, c, corev1.EventTypeWarning, "InspectFailed", message)
		return "", &Waiting{Reason: ReasonInvalidImageName, Message: message}
	}
	image := withTag(c.Image)
	if id, w := p.known(pod.UID, image, start); w != nil || id != "" {
		return id, orNil(w)
	}
	if c.ImagePullPolicy != corev1.PullAlways {
		id, w := p.cached(ctx, pod, c, image)
		if w != nil {
			return "", w
		}
		if id != "" {
			p.use(pod.UID, image, start, id)
			return id, nil
		}
	}
	if w := p.backingOff(pod, c, image); w != nil {
		return "", w
	}
	p.begin(ctx, pod, c, image, start)
	return "", &Waiting{}
}

// cached returns the id of an image that is on the node and that the pod may use.
// It returns neither an id nor a *Waiting if the image must be pulled.
func (p *Puller) cached(ctx context.Context, pod *corev1.Pod, c *corev1.Container, image string) (string, *Waiting) {
	id, err := p.present(ctx, image)
	if err != nil {
		message := fmt.Sprintf("Failed to inspect image %q: %v", c.Image, err)
		p.event(pod, c, corev1.EventTypeWarning, "InspectFailed", message)
		return "", &Waiting{Reason: ReasonImageInspectError, Message: message, Until: time.Now().Add(firstDelay)}
	}
	if id != "" && p.mayUse(ctx, pod, image, id) {
		p.event(pod, c, corev1.EventTypeNormal, "Pulled", fmt.Sprintf("Container image %q already present on machine and can be accessed by the pod", c.Image))
		return id, nil
	}
	if c.ImagePullPolicy == corev1.PullNever {
		message := fmt.Sprintf("Container image %q is not present with pull policy of Never", c.Image)
		p.event(pod, c, corev1.EventTypeWarning, ReasonErrImageNeverPull, message)
		return "", &Waiting{Reason: ReasonErrImageNeverPull, Message: message, Until: time.Now().Add(firstDelay)}
	}
	return "", nil
}

// mayUse reports whether a pod may use an image on the node without pulling it:
// the policy requires no credentials, or the image was pulled without any or with
// those of one of the pod's secrets. The result holds for the pod's later
// containers too, so that they start without the API server.
func (p *Puller) mayUse(ctx context.Context, pod *corev1.Pod, image, id string) bool {
	pulled, creds := p.cfg.Records.lookup(image, id)
	if !p.cfg.Verify.required(image, pulled) || creds.NodePodsAccessible {
		return true
	}
	p.mu.Lock()
	shown := p.stateLocked(pod.UID, image).mayUse == id
	p.mu.Unlock()
	if shown {
		return true
	}
	if len(creds.Secrets) == 0 {
		return false
	}
	var secrets []SecretRecord
	for _, found := range p.credentials(ctx, pod, image) {
		secrets = append(secrets, found.secret)
	}
	if !p.cfg.Records.known(image, id, creds, secrets) {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stateLocked(pod.UID, image).mayUse = id
	return true
}

// use keeps the id of an image for one start of a container.
func (p *Puller) use(uid types.UID, image, start, id string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stateLocked(uid, image).done[start] = id
}

func orNil(w *Waiting) error {
	if w == nil {
		return nil
	}
	return w
}

// Used reports that the image was used for this start, successfully or not. The
// next Ensure asks the runtime again.
func (p *Puller) Used(uid types.UID, c *corev1.Container, start string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if s := p.pods[uid][withTag(c.Image)]; s != nil {
		delete(s.done, start)
	}
}

// stateLocked returns the state of an image for a pod and creates it on the first
// call. p.mu is held.
func (p *Puller) stateLocked(uid types.UID, image string) *state {
	byImage := p.pods[uid]
	if byImage == nil {
		byImage = map[string]*state{}
		p.pods[uid] = byImage
	}
	s := byImage[image]
	if s == nil {
		s = &state{done: map[string]string{}, retry: backoff.Backoff{Initial: firstDelay, Max: maxDelay}}
		byImage[image] = s
	}
	return s
}

// known returns the result of an earlier pull for this start, or a *Waiting while
// the image is being pulled.
func (p *Puller) known(uid types.UID, image, start string) (string, *Waiting) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.pods[uid][image]
	switch {
	case s == nil:
		return "", nil
	case s.done[start] != "":
		return s.done[start], nil
	case s.pulling:
		return "", &Waiting{}
	}
	return "", nil
}

// backingOff returns a *Waiting during the back-off after a failed pull, else nil.
func (p *Puller) backingOff(pod *corev1.Pod, c *corev1.Container, image string) *Waiting {
	p.mu.Lock()
	s := p.pods[pod.UID][image]
	if s == nil || s.err == nil || !time.Now().Before(s.until) {
		p.mu.Unlock()
		return nil
	}
	w := &Waiting{
		Reason:  ReasonImagePullBackOff,
		Message: fmt.Sprintf("Back-off pulling image %q: %s: %s", c.Image, ReasonErrImagePull, s.err),
		Until:   s.until,
	}
	event := false
	if shown := s.failed.Add(showFailure); time.Now().Before(shown) {
		w.Reason, w.Message, w.Until = ReasonErrImagePull, s.err.Error(), shown
	} else if !s.reported {
		s.reported, event = true, true
	}
	p.mu.Unlock()
	if event {
		p.event(pod, c, corev1.EventTypeNormal, "BackOff", fmt.Sprintf("Back-off pulling image %q", c.Image))
		p.event(pod, c, corev1.EventTypeWarning, "Failed", "Error: "+ReasonImagePullBackOff)
	}
	return w
}

// present returns the id of an image on the node; "" if it is absent.
func (p *Puller) present(ctx context.Context, image string) (string, error) {
	res, err := p.cfg.Images.ImageStatus(ctx, &runtimeapi.ImageStatusRequest{Image: &runtimeapi.ImageSpec{Image: image}})
	if err != nil {
		return "", err
	}
	return res.Image.GetId(), nil
}

// begin starts a pull in the background.
func (p *Puller) begin(ctx context.Context, pod *corev1.Pod, c *corev1.Container, image, start string) {
	p.mu.Lock()
	s := p.stateLocked(pod.UID, image)
	s.pulling = true
	p.waitLocked(pod.UID, s)
	p.mu.Unlock()
	p.pulls.Go(func() {
		id, err := p.pull(ctx, pod, c, image)
		p.mu.Lock()
		s.pulling, s.err, s.reported = false, err, false
		if err == nil {
			s.retry.Reset()
			s.done[start], s.mayUse = id, id
			s.arrived()
		} else {
			s.failed = time.Now()
			s.until = s.failed.Add(s.retry.Next())
		}
		p.mu.Unlock()
		p.cfg.Wake(pod.UID)
	})
}

// pull waits for a free slot and pulls the image.
func (p *Puller) pull(ctx context.Context, pod *corev1.Pod, c *corev1.Container, image string) (string, error) {
	asked := time.Now()
	select {
	case p.slots <- struct{}{}:
		defer func() { <-p.slots }()
	case <-ctx.Done():
		return "", ctx.Err()
	}
	p.event(pod, c, corev1.EventTypeNormal, "Pulling", fmt.Sprintf("Pulling image %q", c.Image))
	creds := append(p.credentials(ctx, pod, image), p.ofNode(ctx, image)...)
	began := time.Now()
	got, err := p.recorded(ctx, c, image, creds)
	if err == nil {
		now := time.Now()
		p.event(pod, c, corev1.EventTypeNormal, "Pulled", fmt.Sprintf("Successfully pulled image %q in %v (%v including waiting). Image size: %d bytes.",
			c.Image, now.Sub(began).Truncate(time.Millisecond), now.Sub(asked).Truncate(time.Millisecond), got.Size))
		return got.Id, nil
	}
	if ctx.Err() == nil {
		p.event(pod, c, corev1.EventTypeWarning, "Failed", fmt.Sprintf("Failed to pull image %q: %v", c.Image, err))
		p.event(pod, c, corev1.EventTypeWarning, "Failed", "Error: "+ReasonErrImagePull)
	}
	return "", err
}

// recorded pulls the image and records the pull. It writes the intent first, so
// that the image counts as pulled by the kubelet even if the kubelet is killed.
func (p *Puller) recorded(ctx context.Context, c *corev1.Container, image string, creds []credential) (*runtimeapi.Image, error) {
	if err := p.cfg.Records.begin(image); err != nil {
		return nil, fmt.Errorf("record image pull intent for container image %q: %w", c.Image, err)
	}
	ref, used, err := p.try(ctx, c, image, creds)
	if err != nil {
		p.cfg.Records.failed(image, ctx.Err() == nil && !cri.Uncertain(err))
		return nil, errors.New(cri.Message(err))
	}
	got := &runtimeapi.Image{Id: ref}
	status, err := p.cfg.Images.ImageStatus(ctx, &runtimeapi.ImageStatusRequest{Image: &runtimeapi.ImageSpec{Image: image}})
	if err == nil && status.Image.GetId() != "" {
		got = status.Image
	}
	p.cfg.Records.pulled(image, got.Id, used)
	return got, nil
}

// try pulls with each credential until a pull succeeds, or without credentials if
// creds is empty. used is the secret that succeeded; nil: none, or one of the node.
func (p *Puller) try(ctx context.Context, c *corev1.Container, image string, creds []credential) (ref string, used *SecretRecord, err error) {
	if len(creds) == 0 {
		creds = []credential{{}}
	}
	for i := range creds {
		var res *runtimeapi.PullImageResponse
		res, err = p.cfg.Images.PullImage(ctx, &runtimeapi.PullImageRequest{Image: &runtimeapi.ImageSpec{Image: image, UserSpecifiedImage: c.Image}, Auth: creds[i].auth})
		if err == nil && creds[i].auth != nil && !creds[i].node {
			return res.ImageRef, &creds[i].secret, nil
		}
		if err == nil {
			return res.ImageRef, nil, nil
		}
	}
	return "", nil, err
}

// credentials returns the credentials for an image from the pod's pull secrets.
// It reports a secret that it cannot use and ignores it: the image may not need it.
func (p *Puller) credentials(ctx context.Context, pod *corev1.Pod, image string) []credential {
	ring := newKeyring()
	var unusable []string
	for _, ref := range pod.Spec.ImagePullSecrets {
		if ref.Name == "" {
			continue
		}
		s, err := p.cfg.Secret(ctx, pod.Namespace, ref.Name)
		if err == nil {
			err = ring.add(s)
		}
		if err != nil {
			p.cfg.Log.Warn("invalid image pull secret", "pod", pod.Namespace+"/"+pod.Name, "secret", ref.Name, "error", err)
			unusable = append(unusable, ref.Name)
		}
	}
	if len(unusable) > 0 && ctx.Err() == nil {
		p.cfg.Events.EventOn(pod, "", corev1.EventTypeWarning, "FailedToRetrieveImagePullSecret",
			fmt.Sprintf("Unable to retrieve some image pull secrets (%s); attempting to pull the image may not succeed.", strings.Join(unusable, ", ")))
	}
	return ring.find(image)
}

func (p *Puller) event(pod *corev1.Pod, c *corev1.Container, eventType, reason, message string) {
	p.cfg.Events.EventOn(pod, FieldPath(pod, c.Name), eventType, reason, message)
}

// FieldPath returns the field path of a container for an event's involvedObject; "" for
// the image of a volume, which has no container's name.
func FieldPath(pod *corev1.Pod, name string) string {
	if name == "" {
		return ""
	}
	for i := range pod.Spec.InitContainers {
		if pod.Spec.InitContainers[i].Name == name {
			return "spec.initContainers{" + name + "}"
		}
	}
	if podspec.Ephemeral(pod, name) != nil {
		return "spec.ephemeralContainers{" + name + "}"
	}
	return "spec.containers{" + name + "}"
}

// The grammar of image names, from the specification of the distribution project.
const (
	alnum     = `[a-z0-9]+`
	component = alnum + `(?:(?:\.|_|__|-+)` + alnum + `)*`
	label     = `(?:[a-zA-Z0-9]|[a-zA-Z0-9][a-zA-Z0-9-]*[a-zA-Z0-9])`
	domain    = `(?:` + label + `(?:\.` + label + `)*|\[[a-fA-F0-9:]+\])(?::[0-9]+)?`
	reference = `^(?:` + domain + `/)?` + component + `(?:/` + component + `)*(?::\w[\w.-]{0,127})?(?:@[A-Za-z][A-Za-z0-9]*(?:[-_+.][A-Za-z][A-Za-z0-9]*)*:[0-9a-fA-F]{32,})?$`
)

// validName reports whether a runtime could parse image as a name or an id.
func validName(image string) bool {
	return imageName().MatchString(image)
}

var imageName = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(reference) })
