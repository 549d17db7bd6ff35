"""Problems and reviewed kernels. Reading their metadata imports neither torch nor a kernel."""
