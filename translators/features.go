package translators

// Features are the optional interfaces of a codec, asserted once. Those that it does not
// implement are nil.
type Features struct {
	Asker     Asker
	Carrier   Carrier
	Changer   Changer
	Notifier  Notifier
	Historian Historian
	Librarian Librarian
	Mirrorer  Mirrorer
	Namer     Namer
	Signaler  Signaler
	Tasker    Tasker
}

// FeaturesOf asserts the optional interfaces of a codec; nil has none.
func FeaturesOf(t Translator) *Features {
	f := &Features{}
	f.Asker, _ = t.(Asker)
	f.Carrier, _ = t.(Carrier)
	f.Changer, _ = t.(Changer)
	f.Notifier, _ = t.(Notifier)
	f.Historian, _ = t.(Historian)
	f.Librarian, _ = t.(Librarian)
	f.Mirrorer, _ = t.(Mirrorer)
	f.Namer, _ = t.(Namer)
	f.Signaler, _ = t.(Signaler)
	f.Tasker, _ = t.(Tasker)
	return f
}
