// Package images provides the images of containers: pull policies, pull secrets,
// pulls in the background, and the back-off after failed pulls. It also verifies
// that a pod has credentials for an image that was pulled with credentials, and
// removes unused images when the disk fills up.
package images
