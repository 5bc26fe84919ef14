package security

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"podium/pkg/client"
)

// hostSecret creates a file on the machine that no container and no client may read or change. It
// returns the folder that contains it under the name "secret".
func hostSecret(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	check(t, os.WriteFile(filepath.Join(dir, "secret"), []byte(sesame), 0o600))
	t.Cleanup(func() {
		data, err := os.ReadFile(filepath.Join(dir, "secret"))
		entries, _ := os.ReadDir(dir)
		if err != nil || string(data) != sesame || len(entries) != 1 {
			t.Errorf("the machine's folder was changed: %q, %v, %v", data, entries, err)
		}
	})
	return dir
}

// A path in a spec or a key that would lead out of its folder is refused before it is stored.
func TestPathsInSpecs(t *testing.T) {
	t.Parallel()
	ns, root := space(t), administrator(t)
	pods := "/api/v1/namespaces/" + ns + "/pods?dryRun=All"
	refused := func(what, path, body string) {
		if a := root.do(t, "POST", path, body); a.code != http.StatusUnprocessableEntity {
			t.Errorf("%s: %d, want 422: %.300s", what, a.code, a.body)
		}
	}
	for _, key := range []string{"..", ".", "../x", "a/b", "/etc/passwd", "..data", "..2026", "", "a\\u0000b", "a\\nb", `a\\b`, strings.Repeat("a", 254)} {
		for _, resource := range []string{"configmaps", "secrets"} {
			for _, field := range []string{"data", "binaryData", "stringData"} {
				if (field == "binaryData") == (resource == "configmaps") || field == "data" {
					refused(fmt.Sprintf("key %q in %s of %s", key, field, resource), "/api/v1/namespaces/"+ns+"/"+resource+"?dryRun=All", `{"metadata":{"name":"x"},"`+field+`":{"`+key+`":"eA=="}}`)
				}
			}
		}
	}
	for _, path := range []string{"..", "../x", "a/../../x", "/etc/x", "a/..", "..data", "..x/y", ""} {
		item := fmt.Sprintf(`{"key":"k","path":%q}`, path)
		field := fmt.Sprintf(`{"path":%q,"fieldRef":{"fieldPath":"metadata.name"}}`, path)
		volumes := map[string]string{
			"secret": `"secret":{"secretName":"s","items":[` + item + `]}`, "configMap": `"configMap":{"name":"c","items":[` + item + `]}`, "downwardAPI": `"downwardAPI":{"items":[` + field + `]}`,
			"projected secret": `"projected":{"sources":[{"secret":{"name":"s","items":[` + item + `]}}]}`, "projected ConfigMap": `"projected":{"sources":[{"configMap":{"name":"c","items":[` + item + `]}}]}`,
			"projected field": `"projected":{"sources":[{"downwardAPI":{"items":[` + field + `]}}]}`, "projected token": fmt.Sprintf(`"projected":{"sources":[{"serviceAccountToken":{"path":%q}}]}`, path),
		}
		for what, source := range volumes {
			refused(what+" at "+path, pods, `{"metadata":{"name":"p"},"spec":{"containers":[{"name":"c","image":"i"}],"volumes":[{"name":"v",`+source+`}]}}`)
		}
		if path == "" {
			continue
		}
		for _, field := range []string{"subPath", "subPathExpr"} {
			if strings.HasPrefix(path, "..data") || strings.HasPrefix(path, "..x") {
				continue // names a file that starts with two dots, which is in the volume
			}
			refused(field+" "+path, pods, fmt.Sprintf(`{"metadata":{"name":"p"},"spec":{"containers":[{"name":"c","image":"i","volumeMounts":[{"name":"v","mountPath":"/v",%q:%q}]}],"volumes":[{"name":"v","emptyDir":{}}]}}`, field, path))
		}
	}
	for _, path := range []string{"/a/../b", "..", "../etc", "/.."} {
		refused("hostPath "+path, pods, fmt.Sprintf(`{"metadata":{"name":"p"},"spec":{"containers":[{"name":"c","image":"i"}],"volumes":[{"name":"v","hostPath":{"path":%q}}]}}`, path))
	}
	for _, profile := range []string{"../x", "/etc/x", "a/../../x", ".."} {
		refused("seccomp profile "+profile, pods, fmt.Sprintf(`{"metadata":{"name":"p"},"spec":{"securityContext":{"seccompProfile":{"type":"Localhost","localhostProfile":%q}},"containers":[{"name":"c","image":"i"}]}}`, profile))
	}
	for _, name := range []string{"..", "../x", "a/b", "%2e%2e", "."} {
		refused("pod "+name, pods, fmt.Sprintf(`{"metadata":{"name":%q},"spec":{"containers":[{"name":"c","image":"i"}]}}`, name))
		refused("container "+name, pods, fmt.Sprintf(`{"metadata":{"name":"p"},"spec":{"containers":[{"name":%q,"image":"i"}]}}`, name))
	}
}

// Links that a container creates in its volume do not lead a subPath, an environment variable in
// one or a termination message to the machine's files.
func TestLinksOfContainers(t *testing.T) {
	t.Parallel()
	ns, dir := space(t), hostSecret(t)
	up := strings.Repeat("../", 20)
	links := map[string]string{
		"absolute": dir, "up": up + dir[1:], "root": "/", "proc": "/proc/1/root" + dir, "file": dir + "/secret", "dangling": dir + "/new",
		"kubelet": filepath.Join(filepath.Dir(pkiDir), "pki"), "chain": "absolute", "self": "/proc/self/cwd/../../../../../../.." + dir,
	}
	var prepare []string
	var containers []string
	for name, to := range links {
		prepare = append(prepare, fmt.Sprintf("ln -s %s /v/%s", to, name))
		for suffix, sub := range map[string]string{"": name, "-below": name + "/secret", "-dir": name + dir} {
			containers = append(containers, fmt.Sprintf(`{"name":"%s%s","image":"localhost/podium/busybox:v1","command":["sh","-c","cat /m /m/secret /m%s/secret; ls -laR /m > /dev/null; echo x > /m/new"],"volumeMounts":[{"name":"v","mountPath":"/m","subPath":"%s"}]}`, name, suffix, dir, sub))
		}
		containers = append(containers, fmt.Sprintf(`{"name":"%s-message","image":"localhost/podium/busybox:v1","command":["true"],"terminationMessagePath":"/v/%s","volumeMounts":[{"name":"v","mountPath":"/v"}]}`, name, name))
	}
	containers = append(containers,
		fmt.Sprintf(`{"name":"expression","image":"localhost/podium/busybox:v1","env":[{"name":"UP","value":"%s%s"}],"command":["cat","/m/secret"],"volumeMounts":[{"name":"v","mountPath":"/m","subPathExpr":"$(UP)"}]}`, up, dir[1:]),
		fmt.Sprintf(`{"name":"log","image":"localhost/podium/busybox:v1","command":["sh","-c","rm -f /dev/termination-log; ln -sf %s/secret /dev/termination-log; umount /dev/termination-log; mount --bind / /dev"]}`, dir),
		`{"name":"control","image":"localhost/podium/busybox:v1","command":["cat","/m/text"],"volumeMounts":[{"name":"v","mountPath":"/m","subPath":"real"}]}`)
	prepare = append(prepare, "mkdir /v/real", "echo within > /v/real/text")
	manifest := fmt.Sprintf(`{"metadata":{"name":"links"},"spec":{"restartPolicy":"Never","terminationGracePeriodSeconds":0,"automountServiceAccountToken":false,
		"initContainers":[{"name":"prepare","image":"localhost/podium/busybox:v1","command":["sh","-ec",%q],"volumeMounts":[{"name":"v","mountPath":"/v"}]}],
		"containers":[%s],"volumes":[{"name":"v","emptyDir":{}}]}}`, strings.Join(prepare, "\n"), strings.Join(containers, ","))
	root := administrator(t)
	root.must(t, "POST", "/api/v1/namespaces/"+ns+"/pods", manifest)
	var pod *corev1.Pod
	eventually(t, "each container has ended, or cannot be made", func() (err error) {
		if pod, err = client.For[*corev1.Pod](admin).In(ns).Get(t.Context(), "links"); err != nil {
			return err
		}
		if len(pod.Status.ContainerStatuses) < len(containers) {
			return errNotYet
		}
		for _, c := range pod.Status.ContainerStatuses {
			failed := c.State.Waiting != nil && (strings.HasPrefix(c.State.Waiting.Reason, "Create") || strings.HasPrefix(c.State.Waiting.Reason, "Run"))
			if c.State.Terminated == nil && !failed {
				return fmt.Errorf("%s: %+v", c.Name, c.State)
			}
		}
		return nil
	})
	for _, c := range pod.Status.ContainerStatuses {
		log := root.do(t, "GET", "/api/v1/namespaces/"+ns+"/pods/links/log?container="+c.Name, "")
		if reveals(log.body) || c.State.Terminated != nil && reveals(c.State.Terminated.Message) {
			t.Errorf("%s reads the machine's file: %s %+v", c.Name, log.body, c.State)
		}
		if c.Name == "control" && log.body != "within\n" {
			t.Errorf("a subPath that is no link shows %q: this test proves nothing", log.body)
		}
	}
}

// The kubelet's log pages show nothing outside of their folders, even to a client with permission
// for all of them.
func TestLogPages(t *testing.T) {
	t.Parallel()
	dir := hostSecret(t)
	kubelet := newCaller(t, "https://"+net.JoinHostPort(nodeIP(t), "10250"), &tls.Config{InsecureSkipVerify: true, Certificates: []tls.Certificate{stolen(t, "apiserver-kubelet-client")}}, nil)
	root, file := administrator(t), dir+"/secret"
	encoded := strings.ReplaceAll(file, "/", "%2f")
	for _, up := range []string{"../", "..%2f", "%2e%2e/", "%2e%2e%2f", "%252e%252e%252f", "..%5c", "..;/", "...//", "./../", "..%00/"} {
		for _, page := range []string{"/logs/", "/containerLogs/", "/containerLogs/kube-system/", "/containerLogs/kube-system/x/", "/exec/", "/pods/"} {
			for _, target := range []string{strings.Repeat(up, 12) + file[1:], strings.Repeat(up, 12) + encoded[3:], file, encoded} {
				for where, c := range map[string]*caller{"": kubelet, "/api/v1/nodes/node-a/proxy": root} {
					if a := c.do(t, "GET", where+page+target, ""); reveals(a.body) || a.code == http.StatusOK {
						t.Errorf("%s%s%s: %d %.200s", where, page, target, a.code, a.body)
					}
				}
			}
		}
	}
	for _, query := range []string{"?container=../../x", "?container=%2e%2e%2fx", "?previous=../x", "?container="} {
		if a := root.do(t, "GET", "/api/v1/namespaces/kube-system/pods/..%2f..%2fsecret/log"+query, ""); a.code/100 != 4 {
			t.Errorf("%s: %d %s", query, a.code, a.body)
		}
	}
}

// hostileArchive returns what a container sends in place of the requested file: names and links
// that lead elsewhere.
func hostileArchive(t *testing.T, outside string) []byte {
	t.Helper()
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, h := range []tar.Header{
		{Name: "src/fine", Typeflag: tar.TypeReg}, {Name: "src/../../evil", Typeflag: tar.TypeReg}, {Name: outside + "/evil", Typeflag: tar.TypeReg},
		{Name: "src/l", Typeflag: tar.TypeSymlink, Linkname: outside}, {Name: "src/l/evil", Typeflag: tar.TypeReg},
		{Name: "src/h", Typeflag: tar.TypeLink, Linkname: outside + "/secret"}, {Name: "../evil", Typeflag: tar.TypeReg},
		{Name: "src/d", Typeflag: tar.TypeSymlink, Linkname: ".."}, {Name: "src/d/d/evil", Typeflag: tar.TypeReg}, {Name: "src", Typeflag: tar.TypeSymlink, Linkname: outside}, {Name: "src/evil", Typeflag: tar.TypeReg},
	} {
		h.Mode = 0o6777
		if h.Typeflag == tar.TypeReg {
			h.Size = 4
		}
		check(t, w.WriteHeader(&h))
		if h.Size > 0 {
			_, err := w.Write([]byte("evil"))
			check(t, err)
		}
	}
	check(t, w.Close())
	return out.Bytes()
}

// A container that answers `podium cp` with a hostile archive writes nothing outside of the
// requested folder.
func TestCopyFromAHostileContainer(t *testing.T) {
	t.Parallel()
	ns, dir := space(t), hostSecret(t)
	root := administrator(t)
	archive := base64.StdEncoding.EncodeToString(hostileArchive(t, dir))
	config, err := json.Marshal(map[string]any{
		"metadata": map[string]string{"name": "evil"}, "data": map[string]string{"tar": "#!/bin/sh\ncat /evil/archive\n"}, "binaryData": map[string]string{"archive": archive},
	})
	check(t, err)
	root.must(t, "POST", "/api/v1/namespaces/"+ns+"/configmaps", string(config))
	root.must(t, "POST", "/api/v1/namespaces/"+ns+"/pods", `{"metadata":{"name":"p"},"spec":{"terminationGracePeriodSeconds":0,"containers":[{"name":"c","image":"localhost/podium/busybox:v1","command":["sleep","3600"],
		"env":[{"name":"PATH","value":"/evil:/bin"}],"volumeMounts":[{"name":"v","mountPath":"/evil"}]}],"volumes":[{"name":"v","configMap":{"name":"evil","defaultMode":493}}]}}`)
	eventually(t, "the pod runs", func() error {
		p, err := client.For[*corev1.Pod](admin).In(ns).Get(t.Context(), "p")
		if err == nil && p.Status.Phase != corev1.PodRunning {
			err = errNotYet
		}
		return err
	})
	top := t.TempDir()
	dst := filepath.Join(top, "here", "dst")
	check(t, os.MkdirAll(dst, 0o755))
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	out, err := exec.CommandContext(ctx, "../../../bin/podium", "cp", "-n", ns, "p:/src", dst).CombinedOutput()
	t.Logf("podium cp: %v: %s", err, out)
	if ctx.Err() != nil {
		t.Error("podium cp does not end")
	}
	written := 0
	check(t, filepath.WalkDir(top, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil || d.IsDir():
			return err
		case !strings.HasPrefix(path, dst+"/"):
			t.Errorf("it wrote %s", path)
		case !d.Type().IsRegular():
			t.Errorf("it made %s, %v", path, d.Type())
		default:
			written++
		}
		return nil
	}))
	if written == 0 {
		t.Error("nothing was written at all: this test tries nothing")
	}
}
