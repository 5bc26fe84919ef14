package vm

import "fmt"

// What the server serves, as in the const serve.
const (
	iqnOpen       = "iqn.2026-01.dev.podium:open"
	iqnCHAP       = "iqn.2026-01.dev.podium:chap"
	password      = "open-sesame-24"
	wrongPassword = "close-sesame-42"
	diskOpen1     = "/dev/disk/by-path/ip-10.0.0.12:3260-iscsi-" + iqnOpen + "-lun-1"
)

// Sources of volumes, as fields of a volume or of a PersistentVolume.
const (
	emptyDir    = "emptyDir: {}"
	nfsVolume   = "nfs: {server: 10.0.0.12, path: /srv/nfs}"
	iscsiVolume = `iscsi: {targetPortal: "10.0.0.12:3260", iqn: "` + iqnOpen + `", lun: 1, fsType: ext4}`
	// Without a port: 3260 is the default.
	chapVolume = `iscsi: {targetPortal: 10.0.0.12, iqn: "` + iqnCHAP + `", lun: 1, fsType: ext4, chapAuthSession: true, secretRef: {namespace: default, name: chap}}`
)

// claim returns the source of a volume that a claim names.
func claim(name string) string { return "persistentVolumeClaim: {claimName: " + name + "}" }

// sleep is the script of pods that only have a volume.
const sleep = "sleep 7200"

// pod returns a pod that runs a script, with a volume at /data.
func pod(name, script, source string) string {
	return fmt.Sprintf(`---
apiVersion: v1
kind: Pod
metadata: {name: %s}
spec:
  terminationGracePeriodSeconds: 1
  containers:
    - name: box
      image: localhost/podium/busybox:v1
      command: [sh, -ec, %q]
      volumeMounts: [{name: data, mountPath: /data}]
  volumes: [{name: data, %s}]
`, name, script, source)
}

// blockPod has the claim block as the device /dev/disk.
const blockPod = `---
apiVersion: v1
kind: Pod
metadata: {name: block}
spec:
  terminationGracePeriodSeconds: 1
  containers:
    - name: box
      image: localhost/podium/busybox:v1
      command: [sleep, "7200"]
      volumeDevices: [{name: data, devicePath: /dev/disk}]
  volumes: [{name: data, persistentVolumeClaim: {claimName: block}}]
`

// persistent returns a PersistentVolume and its claim of the same name. Both have the fields of shape.
func persistent(name, shape, source string) string {
	return fmt.Sprintf(`---
apiVersion: v1
kind: PersistentVolume
metadata: {name: %[1]s}
spec: {capacity: {storage: 64Mi}, storageClassName: "", claimRef: {namespace: default, name: %[1]s}, %[2]s, %[3]s}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: %[1]s}
spec: {storageClassName: "", volumeName: %[1]s, resources: {requests: {storage: 64Mi}}, %[2]s}
`, name, shape, source)
}

// secret returns the Secret of chapVolume.
func secret(password string) string {
	return fmt.Sprintf(`---
apiVersion: v1
kind: Secret
metadata: {name: chap}
type: kubernetes.io/iscsi-chap
stringData: {node.session.auth.username: podium, node.session.auth.password: %s}
`, password)
}
