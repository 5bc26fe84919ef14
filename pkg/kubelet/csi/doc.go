// Package csi mounts the volumes of CSI drivers on a node.
//
// Drivers register through package plugins; csinode.go writes what they say about the node
// to the CSINode and the Node. A volume of a pod is set up in these steps, each of which
// may be repeated:
//
//	the node's status says that the volume is in use, the controller attaches it (attach.go)
//	NodeStageVolume, once for all pods of the node (stage.go)
//	NodePublishVolume, for the pod (publish.go)
//
// The tear-down of the pod calls NodeUnpublishVolume. After the last pod of the node,
// unstage.go calls NodeUnstageVolume; it retries without the pod. All state is on disk, in
// upstream's layout: a record (vol_data.json) is written before the call whose effect it
// describes, and removed after the call that undoes it.
//
//	pods/<uid>/volumes/kubernetes.io~csi/<volume>/vol_data.json, mount
//	plugins/kubernetes.io/csi/<driver>/<sha256 of the handle>/vol_data.json, globalmount
//	plugins/kubernetes.io/csi/volumeDevices/<volume>/data/vol_data.json
//	plugins/kubernetes.io/csi/volumeDevices/staging/<volume>
//	plugins/kubernetes.io/csi/volumeDevices/publish/<volume>/<uid>
package csi
