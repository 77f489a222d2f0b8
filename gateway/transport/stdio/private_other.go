//go:build !linux

package stdio

func keepPrivate() {}
