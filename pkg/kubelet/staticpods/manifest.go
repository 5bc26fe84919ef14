package staticpods

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"time"

	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"

	kubeletpod "podium/pkg/kubelet/podspec"
	"podium/pkg/podspec"
)

// maxManifest limits the size of a manifest.
const maxManifest = 10 << 20

// validUID matches uids that may be a part of paths on the node.
var validUID = regexp.MustCompile(`^[0-9A-Za-z-]{1,63}$`)

// The priorities of the classes that every cluster has. Others are only in the API.
var builtInPriorities = map[string]int32{
	"system-cluster-critical": 2000000000,
	"system-node-critical":    2000001000,
}

// origin is where manifests are from.
type origin struct {
	kind string // podspec.FileSource or podspec.HTTPSource
	name string // the path or the URL
	node string
}

// decode returns the pod of a manifest in YAML or JSON, with the defaults of the API and
// what makes it a static pod of the node.
func (o origin) decode(data []byte, now time.Time) (*corev1.Pod, error) {
	doc, err := single(data)
	if err != nil {
		return nil, err
	}
	pod := &corev1.Pod{}
	if err := yaml.UnmarshalStrict(doc, pod); err != nil {
		return nil, err
	}
	if pod.APIVersion != "v1" || pod.Kind != "Pod" {
		return nil, fmt.Errorf("apiVersion %q, kind %q: want v1, Pod", pod.APIVersion, pod.Kind)
	}
	return o.complete(pod, now)
}

// decodeList returns the pods of a manifest, which is a Pod or a PodList. Of the pods of
// a list, it returns those that are valid, and an error for the others.
func (o origin) decodeList(data []byte, now time.Time) ([]*corev1.Pod, error) {
	doc, err := single(data)
	if err != nil {
		return nil, err
	}
	var kind metav1.TypeMeta
	if err := yaml.Unmarshal(doc, &kind); err != nil {
		return nil, err
	}
	if kind.APIVersion != "v1" || kind.Kind != "PodList" {
		pod, err := o.decode(doc, now)
		if err != nil {
			return nil, err
		}
		return []*corev1.Pod{pod}, nil
	}
	var list corev1.PodList
	if err := yaml.UnmarshalStrict(doc, &list); err != nil {
		return nil, err
	}
	out := []*corev1.Pod{} // not nil: it is known which there are
	var errs []error
	for i := range list.Items {
		pod, err := o.complete(&list.Items[i], now)
		if err != nil {
			errs = append(errs, fmt.Errorf("items[%d]: %w", i, err))
			continue
		}
		out = append(out, pod)
	}
	return out, errors.Join(errs...)
}

// single returns the only document of a manifest.
func single(data []byte) ([]byte, error) {
	var found []byte
	docs := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(data)))
	for {
		doc, err := docs.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
		text, err := yaml.YAMLToJSON(doc)
		switch {
		case err != nil:
			return nil, err
		case string(text) == "null":
		case found != nil:
			return nil, errors.New("the manifest has several documents: want one")
		default:
			found = doc
		}
	}
	if found == nil {
		return nil, errors.New("the manifest is empty")
	}
	return found, nil
}

// complete makes the pod of a manifest a static pod of the node, and validates it.
func (o origin) complete(pod *corev1.Pod, now time.Time) (*corev1.Pod, error) {
	hash, err := o.hash(pod)
	if err != nil {
		return nil, err
	}
	m := &pod.ObjectMeta
	if m.UID == "" {
		m.UID = types.UID(hash)
	}
	if !validUID.MatchString(string(m.UID)) {
		return nil, fmt.Errorf("metadata.uid %q: want up to 63 letters, digits and dashes", m.UID)
	}
	if m.Name == "" {
		return nil, errors.New("metadata.name: Required value")
	}
	annotations := map[string]string{}
	for key, value := range m.Annotations {
		annotations[key] = value
	}
	delete(annotations, corev1.MirrorPodAnnotationKey)
	annotations[kubeletpod.SourceAnnotation] = o.kind
	annotations[kubeletpod.HashAnnotation] = string(m.UID)
	annotations[kubeletpod.SeenAnnotation] = now.Format(time.RFC3339Nano)
	out := &corev1.Pod{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{
			Name: m.Name + "-" + o.node, Namespace: m.Namespace, UID: m.UID, Labels: m.Labels, Annotations: annotations,
			Generation: 1, CreationTimestamp: metav1.NewTime(now.Truncate(time.Second)),
		},
		Spec: pod.Spec, Status: corev1.PodStatus{Phase: corev1.PodPending},
	}
	if out.Namespace == "" {
		out.Namespace = metav1.NamespaceDefault
	}
	o.place(&out.Spec)
	podspec.DefaultPod(out)
	return out, validate(out)
}

// place binds the pod to the node.
func (o origin) place(spec *corev1.PodSpec) {
	spec.NodeName = o.node
	everything := corev1.Toleration{Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute}
	if o.kind == kubeletpod.FileSource && !tolerated(spec, everything) {
		spec.Tolerations = append(spec.Tolerations, everything)
	}
	if value, known := builtInPriorities[spec.PriorityClassName]; known && spec.Priority == nil {
		spec.Priority = &value
	}
}

func tolerated(spec *corev1.PodSpec, t corev1.Toleration) bool {
	for i := range spec.Tolerations {
		if spec.Tolerations[i].MatchToleration(&t) {
			return true
		}
	}
	return false
}

// hash returns a hash of the manifest and its origin: a pod of another manifest is another
// pod.
func (o origin) hash(pod *corev1.Pod) (string, error) {
	data, err := json.Marshal(pod)
	if err != nil {
		return "", err
	}
	h := sha256.New()
	fmt.Fprintf(h, "%q %q %q ", o.node, o.kind, o.name)
	h.Write(data)
	return hex.EncodeToString(h.Sum(nil)[:16]), nil
}

// validate checks the pod as the API server does a new one. What is in the API only, it
// must not refer to.
func validate(pod *corev1.Pod) error {
	if what := podspec.RefersTo(&pod.Spec); what != "" {
		return fmt.Errorf("static pods may not reference %s", what)
	}
	errs := apivalidation.ValidateObjectMeta(&pod.ObjectMeta, true, apivalidation.NameIsDNSSubdomain, field.NewPath("metadata"))
	errs = append(errs, podspec.ValidatePod(pod)...)
	return errs.ToAggregate()
}
