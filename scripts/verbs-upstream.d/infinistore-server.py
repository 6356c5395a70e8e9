"""InfiniStore's server, for a user who may not protect it from the system's lack of memory. Words: its own."""
import infinistore.server

infinistore.server.prevent_oom = lambda: None
infinistore.server.main()
