// Package attachdetach attaches the volumes of CSI drivers to the nodes of the pods that
// use them.
//
// For each volume and node there is a VolumeAttachment, on which the driver's
// external-attacher acts. Drivers of the kubelet itself have no attacher: their volumes are
// attached when the object exists. The status of the node lists the volumes that are attached
// (volumesAttached, written here) and those that the kubelet uses (volumesInUse). A volume
// is detached when no pod of the node needs it and the kubelet does not use it. Before its
// VolumeAttachment is deleted, it is removed from the node's list by a write that fails if
// the Node has changed meanwhile: the kubelet, which says first that it uses the volume,
// cannot mount one that is being detached.
package attachdetach
