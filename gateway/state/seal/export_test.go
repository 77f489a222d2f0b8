package seal

// Driver is what the sealed blobs are in.
func (b *Blobs) Driver() BlobStore { return b.driver }
