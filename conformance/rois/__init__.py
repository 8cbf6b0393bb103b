"""What the suite shares between RoiAlign and DmlRoiAlign, which sample upright RoIs on a grid."""
