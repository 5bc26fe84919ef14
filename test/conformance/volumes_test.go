package conformance

import (
	"context"
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// A fileSource is one of the four kinds of volumes whose files are the keys of
// a ConfigMap or a Secret.
type fileSource struct {
	secret, projected bool
}

func (s fileSource) prefix() string {
	switch {
	case s.projected && s.secret:
		return "projected-secret-"
	case s.projected:
		return "projected-configmap-"
	case s.secret:
		return "secret-volume-"
	}
	return "configmap-volume-"
}

// volume returns a volume of the object name. With no items the volume has all
// keys; mode 0 is the default.
func (s fileSource) volume(name string, mode int32, optional bool, items ...corev1.KeyToPath) corev1.VolumeSource {
	var defaultMode *int32
	if mode != 0 {
		defaultMode = &mode
	}
	ref := corev1.LocalObjectReference{Name: name}
	switch {
	case s.projected && s.secret:
		return corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{DefaultMode: defaultMode, Sources: []corev1.VolumeProjection{
			{Secret: &corev1.SecretProjection{LocalObjectReference: ref, Items: items, Optional: &optional}},
		}}}
	case s.projected:
		return corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{DefaultMode: defaultMode, Sources: []corev1.VolumeProjection{
			{ConfigMap: &corev1.ConfigMapProjection{LocalObjectReference: ref, Items: items, Optional: &optional}},
		}}}
	case s.secret:
		return corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: name, DefaultMode: defaultMode, Items: items, Optional: &optional}}
	}
	return corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: ref, DefaultMode: defaultMode, Items: items, Optional: &optional}}
}

// create creates the object with the data.
func (s fileSource) create(t *testing.T, ctx context.Context, namespace, name string, data map[string]string) {
	t.Helper()
	meta := metav1.ObjectMeta{Name: name}
	var err error
	if s.secret {
		_, err = admin.CoreV1().Secrets(namespace).Create(ctx, &corev1.Secret{ObjectMeta: meta, StringData: data}, metav1.CreateOptions{})
	} else {
		_, err = admin.CoreV1().ConfigMaps(namespace).Create(ctx, &corev1.ConfigMap{ObjectMeta: meta, Data: data}, metav1.CreateOptions{})
	}
	check(t, err)
}

// set changes the value of a key.
func (s fileSource) set(t *testing.T, ctx context.Context, namespace, name, key, value string) {
	t.Helper()
	var err error
	if s.secret {
		patch := fmt.Sprintf(`{"stringData":{%q:%q}}`, key, value)
		_, err = admin.CoreV1().Secrets(namespace).Patch(ctx, name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	} else {
		patch := fmt.Sprintf(`{"data":{%q:%q}}`, key, value)
		_, err = admin.CoreV1().ConfigMaps(namespace).Patch(ctx, name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	}
	check(t, err)
}

func (s fileSource) delete(t *testing.T, ctx context.Context, namespace, name string) {
	t.Helper()
	if s.secret {
		check(t, admin.CoreV1().Secrets(namespace).Delete(ctx, name, metav1.DeleteOptions{}))
		return
	}
	check(t, admin.CoreV1().ConfigMaps(namespace).Delete(ctx, name, metav1.DeleteOptions{}))
}

func fileVolumes() []testcase {
	var rows []testcase
	for _, secret := range []bool{false, true} {
		for _, projected := range []bool{false, true} {
			s := fileSource{secret, projected}
			rows = append(rows, s.rows()...)
		}
	}
	return append(rows, testcase{id: "projected-combined", test: projectedCombined})
}

func (s fileSource) rows() []testcase {
	mapped, mode := corev1.KeyToPath{Key: "data-1", Path: "path/to/file"}, int32(0o400)
	strict := corev1.KeyToPath{Key: "data-1", Path: "path/to/file", Mode: &mode}
	rows := []testcase{
		{id: "basic", test: s.shows("data-1", "644", nil, 0)},
		{id: "defaultmode", test: s.shows("data-1", "400", nil, 0o400)},
		{id: "mappings", test: s.shows("path/to/file", "644", nil, 0, mapped)},
		{id: "mappings-itemmode", test: s.shows("path/to/file", "400", nil, 0, strict)},
		{id: "multiple", test: s.multiple},
		{id: "optional-updates", test: s.optionalUpdates},
	}
	if s.secret {
		user := &corev1.PodSecurityContext{RunAsUser: ptr(int64(1000)), FSGroup: ptr(int64(1001))}
		rows = append(rows, testcase{id: "nonroot-fsgroup", test: s.shows("data-1", "440", user, 0o440)})
		if !s.projected {
			rows = append(rows, testcase{id: "same-name-other-namespace", test: s.otherNamespace})
		}
	} else {
		user := &corev1.PodSecurityContext{RunAsUser: ptr(int64(1000))}
		rows = append(rows,
			testcase{id: "nonroot", test: s.shows("data-1", "644", user, 0)},
			testcase{id: "mappings-nonroot", test: s.shows("path/to/file", "644", user, 0, mapped)},
			testcase{id: "update", test: s.update})
		if !s.projected {
			rows = append(rows, testcase{id: "binary", test: binaryData})
		}
	}
	for i := range rows {
		rows[i].id = s.prefix() + rows[i].id
	}
	return rows
}

func ptr[T any](v T) *T { return &v }

// shows mounts a volume of one object and wants the file with its mode and
// content.
func (s fileSource) shows(file, mode string, security *corev1.PodSecurityContext, defaultMode int32, items ...corev1.KeyToPath) func(*testing.T, context.Context, string) {
	return func(t *testing.T, ctx context.Context, namespace string) {
		s.create(t, ctx, namespace, "object", map[string]string{"data-1": "value-1\n", "data-2": "value-2\n"})
		pod := script(namespace, "stat -L -c %a /v/"+file+" && cat /v/"+file)
		pod.Spec.SecurityContext = security
		mount(pod, "v", "/v", s.volume("object", defaultMode, false, items...))
		prints(t, ctx, pod, mode, "value-1")
	}
}

func (s fileSource) multiple(t *testing.T, ctx context.Context, namespace string) {
	s.create(t, ctx, namespace, "object", map[string]string{"data-1": "value-1\n"})
	pod := script(namespace, "cat /first/data-1 /second/data-1")
	mount(pod, "first", "/first", s.volume("object", 0, false))
	mount(pod, "second", "/second", s.volume("object", 0, false))
	prints(t, ctx, pod, "value-1", "value-1")
}

// watcher is a pod that runs until it is deleted and prints the content of the
// files, or that a file is absent, each time they change.
func watcher(namespace string, files ...string) *corev1.Pod {
	text := "while :; do\n"
	for i, f := range files {
		text += fmt.Sprintf("n=$(cat %s 2>/dev/null || echo absent); [ \"$n\" = \"$l%d\" ] || echo \"%s $n\"; l%d=$n\n", f, i, f, i)
	}
	return script(namespace, text+"sleep 0.2; done")
}

func (s fileSource) update(t *testing.T, ctx context.Context, namespace string) {
	s.create(t, ctx, namespace, "object", map[string]string{"data-1": "value-1"})
	pod := watcher(namespace, "/v/data-1")
	mount(pod, "v", "/v", s.volume("object", 0, false))
	pod = run(t, ctx, pod)
	logsShow(t, ctx, pod, "c", "/v/data-1 value-1")
	s.set(t, ctx, namespace, "object", "data-1", "value-2")
	logsShow(t, ctx, pod, "c", "/v/data-1 value-2")
}

// optionalUpdates has three optional volumes in one running pod: the object of
// the first is deleted, that of the second updated, that of the third created.
func (s fileSource) optionalUpdates(t *testing.T, ctx context.Context, namespace string) {
	s.create(t, ctx, namespace, "deleted", map[string]string{"data-1": "value-1"})
	s.create(t, ctx, namespace, "updated", map[string]string{"data-1": "value-1"})
	pod := watcher(namespace, "/deleted/data-1", "/updated/data-1", "/created/data-1")
	for _, name := range []string{"deleted", "updated", "created"} {
		mount(pod, name, "/"+name, s.volume(name, 0, true))
	}
	pod = run(t, ctx, pod)
	logsShow(t, ctx, pod, "c", "/deleted/data-1 value-1", "/updated/data-1 value-1", "/created/data-1 absent")
	s.delete(t, ctx, namespace, "deleted")
	s.set(t, ctx, namespace, "updated", "data-1", "value-2")
	s.create(t, ctx, namespace, "created", map[string]string{"data-1": "value-1"})
	logsShow(t, ctx, pod, "c", "/deleted/data-1 absent", "/updated/data-1 value-2", "/created/data-1 value-1")
}

// otherNamespace has Secrets of one name in two namespaces: the pod gets that
// of its own.
func (s fileSource) otherNamespace(t *testing.T, ctx context.Context, ns string) {
	other := namespace(t, ctx, "other")
	s.create(t, ctx, other, "object", map[string]string{"data-1": "value-of-other\n"})
	s.create(t, ctx, ns, "object", map[string]string{"data-1": "value-1\n"})
	pod := script(ns, "stat -L -c %a /v/data-1 && cat /v/data-1")
	mount(pod, "v", "/v", s.volume("object", 0, false))
	prints(t, ctx, pod, "644", "value-1")
}

func binaryData(t *testing.T, ctx context.Context, namespace string) {
	_, err := admin.CoreV1().ConfigMaps(namespace).Create(ctx, &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: "object"},
		Data:       map[string]string{"text": "value-1\n"},
		BinaryData: map[string][]byte{"binary": {0xde, 0xca, 0xfe, 0x00, 0xba, 0xd0, 0xfe, 0xff}},
	}, metav1.CreateOptions{})
	check(t, err)
	pod := script(namespace, "cat /v/text && hexdump -v -e '1/1 \"%02x\"' /v/binary && echo")
	mount(pod, "v", "/v", fileSource{}.volume("object", 0, false))
	prints(t, ctx, pod, "value-1", "decafe00bad0feff")
}

func projectedCombined(t *testing.T, ctx context.Context, namespace string) {
	fileSource{}.create(t, ctx, namespace, "config", map[string]string{"c": "of-config\n"})
	fileSource{secret: true}.create(t, ctx, namespace, "secret", map[string]string{"s": "of-secret\n"})
	pod := script(namespace, "cat /v/config/c /v/secret/s /v/podname")
	mount(pod, "v", "/v", corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{
		{ConfigMap: &corev1.ConfigMapProjection{LocalObjectReference: corev1.LocalObjectReference{Name: "config"}, Items: []corev1.KeyToPath{{Key: "c", Path: "config/c"}}}},
		{Secret: &corev1.SecretProjection{LocalObjectReference: corev1.LocalObjectReference{Name: "secret"}, Items: []corev1.KeyToPath{{Key: "s", Path: "secret/s"}}}},
		{DownwardAPI: &corev1.DownwardAPIProjection{Items: []corev1.DownwardAPIVolumeFile{{Path: "podname", FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.name"}}}}},
	}}})
	if got := output(t, ctx, pod); got != "of-config\nof-secret\nscript" {
		t.Errorf("the container printed %q", got)
	}
}

// immutables are the rows of immutable ConfigMaps and Secrets.
func immutables() []testcase {
	return []testcase{{id: "configmap-immutable", test: immutableConfigMap}, {id: "secret-immutable", test: immutableSecret}}
}

func immutableConfigMap(t *testing.T, ctx context.Context, namespace string) {
	maps := admin.CoreV1().ConfigMaps(namespace)
	object, err := maps.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "object"}, Data: map[string]string{"key": "value"}}, metav1.CreateOptions{})
	check(t, err)
	object.Data["key"] = "second"
	object, err = maps.Update(ctx, object, metav1.UpdateOptions{})
	check(t, err)
	object.Immutable = ptr(true)
	object, err = maps.Update(ctx, object, metav1.UpdateOptions{})
	check(t, err)
	refuse := func(what string, change func(*corev1.ConfigMap)) {
		t.Helper()
		changed := object.DeepCopy()
		change(changed)
		_, err := maps.Update(ctx, changed, metav1.UpdateOptions{})
		invalid(t, what, err)
	}
	refuse("change of data", func(o *corev1.ConfigMap) { o.Data["key"] = "third" })
	refuse("change of binaryData", func(o *corev1.ConfigMap) { o.BinaryData = map[string][]byte{"k": {1}} })
	refuse("immutable taken back", func(o *corev1.ConfigMap) { o.Immutable = ptr(false) })
	refuse("immutable removed", func(o *corev1.ConfigMap) { o.Immutable = nil })
	object.Labels = map[string]string{"a": "b"}
	_, err = maps.Update(ctx, object, metav1.UpdateOptions{})
	check(t, err)
	check(t, maps.Delete(ctx, "object", metav1.DeleteOptions{}))
}

func immutableSecret(t *testing.T, ctx context.Context, namespace string) {
	secrets := admin.CoreV1().Secrets(namespace)
	object, err := secrets.Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "object"}, Data: map[string][]byte{"key": []byte("value")}}, metav1.CreateOptions{})
	check(t, err)
	object.Data["key"] = []byte("second")
	object, err = secrets.Update(ctx, object, metav1.UpdateOptions{})
	check(t, err)
	object.Immutable = ptr(true)
	object, err = secrets.Update(ctx, object, metav1.UpdateOptions{})
	check(t, err)
	refuse := func(what string, change func(*corev1.Secret)) {
		t.Helper()
		changed := object.DeepCopy()
		change(changed)
		_, err := secrets.Update(ctx, changed, metav1.UpdateOptions{})
		invalid(t, what, err)
	}
	refuse("change of data", func(o *corev1.Secret) { o.Data["key"] = []byte("third") })
	refuse("immutable taken back", func(o *corev1.Secret) { o.Immutable = ptr(false) })
	refuse("immutable removed", func(o *corev1.Secret) { o.Immutable = nil })
	object.Labels = map[string]string{"a": "b"}
	_, err = secrets.Update(ctx, object, metav1.UpdateOptions{})
	check(t, err)
	check(t, secrets.Delete(ctx, "object", metav1.DeleteOptions{}))
}

// downwardVolumes are the rows of volumes with fields of the pod.
func downwardVolumes() []testcase {
	var rows []testcase
	for _, d := range []downward{{"downward-volume-", false}, {"projected-downward-", true}} {
		rows = append(rows, d.rows()...)
	}
	return rows
}

type downward struct {
	prefix    string
	projected bool
}

func (d downward) volume(defaultMode int32, items ...corev1.DownwardAPIVolumeFile) corev1.VolumeSource {
	var mode *int32
	if defaultMode != 0 {
		mode = &defaultMode
	}
	if d.projected {
		return corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{DefaultMode: mode, Sources: []corev1.VolumeProjection{{DownwardAPI: &corev1.DownwardAPIProjection{Items: items}}}}}
	}
	return corev1.VolumeSource{DownwardAPI: &corev1.DownwardAPIVolumeSource{DefaultMode: mode, Items: items}}
}

func fieldFile(path, field string) corev1.DownwardAPIVolumeFile {
	return corev1.DownwardAPIVolumeFile{Path: path, FieldRef: &corev1.ObjectFieldSelector{FieldPath: field}}
}

func (d downward) rows() []testcase {
	strict := fieldFile("podname", "metadata.name")
	strict.Mode = ptr(int32(0o400))
	rows := []testcase{
		{id: "podname", test: d.name},
		{id: "defaultmode", test: d.mode(0o400, fieldFile("podname", "metadata.name"))},
		{id: "itemmode", test: d.mode(0, strict)},
		{id: "update-labels", test: d.update("metadata.labels", func(pod *corev1.Pod) *map[string]string { return &pod.Labels })},
		{id: "update-annotations", test: d.update("metadata.annotations", func(pod *corev1.Pod) *map[string]string { return &pod.Annotations })},
		{id: "cpu-limit", test: d.resource("limits.cpu", "2")},
		{id: "cpu-request", test: d.resource("requests.cpu", "1")},
		{id: "memory-limit", test: d.resource("limits.memory", "67108864")},
		{id: "memory-request", test: d.resource("requests.memory", "33554432")},
		{id: "cpu-allocatable", test: d.allocatable("limits.cpu", corev1.ResourceCPU)},
		{id: "memory-allocatable", test: d.allocatable("limits.memory", corev1.ResourceMemory)},
	}
	for i := range rows {
		rows[i].id = d.prefix + rows[i].id
	}
	return rows
}

func (d downward) name(t *testing.T, ctx context.Context, namespace string) {
	pod := script(namespace, "cat /v/podname && echo")
	mount(pod, "v", "/v", d.volume(0, fieldFile("podname", "metadata.name")))
	prints(t, ctx, pod, "script")
}

func (d downward) mode(defaultMode int32, file corev1.DownwardAPIVolumeFile) func(*testing.T, context.Context, string) {
	return func(t *testing.T, ctx context.Context, namespace string) {
		pod := script(namespace, "stat -L -c %a /v/podname && cat /v/podname && echo")
		mount(pod, "v", "/v", d.volume(defaultMode, file))
		prints(t, ctx, pod, "400", "script")
	}
}

func (d downward) update(field string, of func(*corev1.Pod) *map[string]string) func(*testing.T, context.Context, string) {
	return func(t *testing.T, ctx context.Context, namespace string) {
		pod := watcher(namespace, "/v/file")
		*of(pod) = map[string]string{"key": "one"}
		mount(pod, "v", "/v", d.volume(0, fieldFile("file", field)))
		pod = run(t, ctx, pod)
		logsShow(t, ctx, pod, "c", `/v/file key="one"`)
		updatePod(t, ctx, namespace, pod.Name, func(pod *corev1.Pod) { *of(pod) = map[string]string{"key": "two"} })
		logsShow(t, ctx, pod, "c", `/v/file key="two"`)
	}
}

func resourceFile(resource string) corev1.DownwardAPIVolumeFile {
	return corev1.DownwardAPIVolumeFile{Path: "resource", ResourceFieldRef: &corev1.ResourceFieldSelector{ContainerName: "c", Resource: resource}}
}

func (d downward) resource(resource, want string) func(*testing.T, context.Context, string) {
	return func(t *testing.T, ctx context.Context, namespace string) {
		pod := script(namespace, "cat /v/resource && echo")
		pod.Spec.Containers[0].Resources = resources("250m", "32Mi", "1250m", "64Mi")
		mount(pod, "v", "/v", d.volume(0, resourceFile(resource)))
		prints(t, ctx, pod, want)
	}
}

// allocatable wants what the pod's node has, since the container has no limit.
func (d downward) allocatable(field string, name corev1.ResourceName) func(*testing.T, context.Context, string) {
	return func(t *testing.T, ctx context.Context, namespace string) {
		pod := script(namespace, "cat /v/resource && echo")
		mount(pod, "v", "/v", d.volume(0, resourceFile(field)))
		got := output(t, ctx, pod)
		pod, err := admin.CoreV1().Pods(namespace).Get(ctx, pod.Name, metav1.GetOptions{})
		check(t, err)
		node, err := admin.CoreV1().Nodes().Get(ctx, pod.Spec.NodeName, metav1.GetOptions{})
		check(t, err)
		quantity := node.Status.Allocatable[name]
		if want := fmt.Sprintf("%d\n", quantity.Value()); got != want {
			t.Errorf("the file holds %q, the node's allocatable is %q", got, want)
		}
	}
}

// emptyDirs are the rows of emptyDir, on disk and in memory.
func emptyDirs() []testcase {
	rows := []testcase{
		{id: "emptydir-dirmode-default", test: emptyDirMode(corev1.StorageMediumDefault)},
		{id: "emptydir-dirmode-tmpfs", test: emptyDirMode(corev1.StorageMediumMemory)},
		{id: "emptydir-shared", test: emptyDirShared},
		{id: "emptydir-wrapper-configmap-race", test: wrappedConfigMaps, serial: true},
		{id: "emptydir-wrapper-no-conflict", test: volumesTogether},
	}
	for suffix, medium := range map[string]corev1.StorageMedium{"default": corev1.StorageMediumDefault, "tmpfs": corev1.StorageMediumMemory} {
		for _, mode := range []string{"644", "666", "777"} {
			rows = append(rows,
				testcase{id: "emptydir-root-0" + mode + "-" + suffix, test: emptyDirFile(medium, mode, nil)},
				testcase{id: "emptydir-nonroot-0" + mode + "-" + suffix, test: emptyDirFile(medium, mode, ptr(int64(1001)))})
		}
	}
	slices.SortFunc(rows, func(a, b testcase) int { return compare(a.id, b.id) })
	return rows
}

func compare(a, b string) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

func emptyDir(medium corev1.StorageMedium) corev1.VolumeSource {
	return corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{Medium: medium}}
}

// fileSystem prints tmpfs or disk for the mount /v.
const fileSystem = `if grep -q ' /v tmpfs ' /proc/mounts; then echo tmpfs; else echo disk; fi
`

func fileSystemOf(medium corev1.StorageMedium) string {
	if medium == corev1.StorageMediumMemory {
		return "tmpfs"
	}
	return "disk"
}

func emptyDirMode(medium corev1.StorageMedium) func(*testing.T, context.Context, string) {
	return func(t *testing.T, ctx context.Context, namespace string) {
		pod := script(namespace, fileSystem+"stat -c %A /v")
		mount(pod, "v", "/v", emptyDir(medium))
		prints(t, ctx, pod, fileSystemOf(medium), "drwxrwxrwx")
	}
}

func emptyDirFile(medium corev1.StorageMedium, mode string, user *int64) func(*testing.T, context.Context, string) {
	return func(t *testing.T, ctx context.Context, namespace string) {
		pod := script(namespace, fileSystem+"umask 0; echo content > /v/file && chmod "+mode+" /v/file && stat -c '%a %u' /v/file && cat /v/file")
		owner := "0"
		if user != nil {
			pod.Spec.SecurityContext = &corev1.PodSecurityContext{RunAsUser: user}
			owner = fmt.Sprint(*user)
		}
		mount(pod, "v", "/v", emptyDir(medium))
		prints(t, ctx, pod, fileSystemOf(medium), mode+" "+owner, "content")
	}
}

// emptyDirShared writes in one container and reads in the other.
func emptyDirShared(t *testing.T, ctx context.Context, namespace string) {
	pod := script(namespace, "echo shared > /v/file && sleep 3600")
	mount(pod, "v", "/v", emptyDir(corev1.StorageMediumDefault))
	reader := *pod.Spec.Containers[0].DeepCopy()
	reader.Name, reader.Command = "reader", []string{"sh", "-c", "until [ -s /v/file ]; do sleep 0.1; done; sleep 3600"}
	pod.Spec.Containers = append(pod.Spec.Containers, reader)
	pod = run(t, ctx, pod)
	eventually(t, ctx, "the other container has the file", func() error {
		if got := exec(t, ctx, pod, "reader", "sh", "-c", "cat /v/file 2>/dev/null || true"); got != "shared\n" {
			return fmt.Errorf("the file holds %q", got)
		}
		return nil
	})
}

func volumesTogether(t *testing.T, ctx context.Context, namespace string) {
	fileSource{}.create(t, ctx, namespace, "config", map[string]string{"c": "of-config\n"})
	fileSource{secret: true}.create(t, ctx, namespace, "secret", map[string]string{"s": "of-secret\n"})
	pod := script(namespace, "cat /config/c /secret/s")
	mount(pod, "config", "/config", fileSource{}.volume("config", 0, false))
	mount(pod, "secret", "/secret", fileSource{secret: true}.volume("secret", 0, false))
	prints(t, ctx, pod, "of-config", "of-secret")
}

// subPaths are the rows of volumeMounts.subPath.
func subPaths() []testcase {
	podName := corev1.VolumeSource{DownwardAPI: &corev1.DownwardAPIVolumeSource{Items: []corev1.DownwardAPIVolumeFile{fieldFile("file", "metadata.name")}}}
	return []testcase{
		{id: "subpath-configmap", test: subPath("/mnt/file", "content", func(t *testing.T, ctx context.Context, namespace string) corev1.VolumeSource {
			fileSource{}.create(t, ctx, namespace, "object", map[string]string{"file": "content"})
			return fileSource{}.volume("object", 0, false)
		})},
		{id: "subpath-configmap-existing-file", test: subPath("/etc/passwd", "content", func(t *testing.T, ctx context.Context, namespace string) corev1.VolumeSource {
			fileSource{}.create(t, ctx, namespace, "object", map[string]string{"file": "content"})
			return fileSource{}.volume("object", 0, false)
		})},
		{id: "subpath-secret", test: subPath("/mnt/file", "content", func(t *testing.T, ctx context.Context, namespace string) corev1.VolumeSource {
			fileSource{secret: true}.create(t, ctx, namespace, "object", map[string]string{"file": "content"})
			return fileSource{secret: true}.volume("object", 0, false)
		})},
		{id: "subpath-projected", test: subPath("/mnt/file", "content", func(t *testing.T, ctx context.Context, namespace string) corev1.VolumeSource {
			fileSource{}.create(t, ctx, namespace, "object", map[string]string{"file": "content"})
			return fileSource{projected: true}.volume("object", 0, false)
		})},
		{id: "subpath-downward", test: subPath("/mnt/file", "script", func(*testing.T, context.Context, string) corev1.VolumeSource { return podName })},
	}
}

// subPath mounts the file of a volume alone and reads it several times.
func subPath(path, want string, source func(t *testing.T, ctx context.Context, namespace string) corev1.VolumeSource) func(*testing.T, context.Context, string) {
	return func(t *testing.T, ctx context.Context, namespace string) {
		pod := script(namespace, "for i in 1 2 3; do cat "+path+" && echo && sleep 1; done")
		mount(pod, "v", path, source(t, ctx, namespace))
		pod.Spec.Containers[0].VolumeMounts[0].SubPath = "file"
		prints(t, ctx, pod, want, want, want)
	}
}
